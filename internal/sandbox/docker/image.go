package docker

import (
	"context"

	"github.com/containerd/errdefs"
)

// ImageID is the id of an image that the daemon has, by its content; "" if it has none of that name.
func (r *Runtime) ImageID(ctx context.Context, name string) (string, error) {
	image, err := r.api.ImageInspect(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", r.failure("look at image "+name, err)
	}
	return image.ID, nil
}
