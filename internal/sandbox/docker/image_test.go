package docker

import "testing"

// What the daemon says of an image, and of one that it does not have.
func TestImageFacts(t *testing.T) {
	t.Parallel()
	r, _ := daemon(t)
	if v, ok, err := r.ImageLabel(t.Context(), testImage, "nanoclaw.source"); err != nil || !ok || v == "" {
		t.Errorf("label %q, %v, %v", v, ok, err)
	}
	if id, err := r.ImageID(t.Context(), testImage); err != nil || id == "" {
		t.Errorf("id %q, %v", id, err)
	}
	if v, ok, err := r.ImageLabel(t.Context(), testImage, "nanoclaw.nothing"); err != nil || ok || v != "" {
		t.Errorf("a label that it has not: %q, %v, %v", v, ok, err)
	}
	const none = "nanoclaw-nowhere.invalid/none:none"
	if v, ok, err := r.ImageLabel(t.Context(), none, "nanoclaw.source"); err != nil || ok || v != "" {
		t.Errorf("an image that is not there: %q, %v, %v", v, ok, err)
	}
	if id, err := r.ImageID(t.Context(), none); err != nil || id != "" {
		t.Errorf("an image that is not there: id %q, %v", id, err)
	}
}
