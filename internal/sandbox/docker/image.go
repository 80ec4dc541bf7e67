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

// ImageLabel is a label of an image that the daemon has; false: the image is not there or has no such label.
func (r *Runtime) ImageLabel(ctx context.Context, name, label string) (value string, ok bool, err error) {
	image, err := r.api.ImageInspect(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, r.failure("look at image "+name, err)
	case image.Config == nil:
		return "", false, nil
	}
	value, ok = image.Config.Labels[label]
	return value, ok, nil
}
