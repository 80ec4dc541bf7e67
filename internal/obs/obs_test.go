package obs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const value = "sk-marker"
	s := NewSecret(value)
	var b bytes.Buffer
	for _, asJSON := range []bool{false, true} {
		Logger(&b, slog.LevelDebug, asJSON).Info("x", "key", s, "struct", struct{ S Secret }{s})
	}
	j, err := json.Marshal(map[string]Secret{"k": s})
	if err != nil {
		t.Fatal(err)
	}
	all := b.String() + string(j) + fmt.Sprintf("%v %+v %#v %s %q", s, s, s, s, s)
	if strings.Contains(all, value) {
		t.Errorf("the value shows in %s", all)
	}
	if s.Reveal() != value {
		t.Error("Reveal lost the value")
	}
}
