package docker

import (
	"context"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// BenchmarkStart compares what Start costs with its floor, a bare create and start of the same command. The removal in
// between is not counted.
func BenchmarkStart(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		r, install := daemon(b)
		for b.Loop() {
			b.StopTimer()
			spec, _ := shell(b, install, "sleep 60")
			b.StartTimer()
			h, err := r.Start(context.Background(), spec)
			b.StopTimer()
			if err != nil {
				b.Fatal(err)
			}
			if err := h.Stop(context.Background(), 0); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("floor", func(b *testing.B) {
		r, _ := daemon(b)
		for b.Loop() {
			c, err := r.api.ContainerCreate(context.Background(), client.ContainerCreateOptions{
				Config:     &container.Config{Image: testImage, NetworkDisabled: true, Entrypoint: []string{"/bin/sh", "-c", "sleep 60"}},
				HostConfig: &container.HostConfig{NetworkMode: "none"},
			})
			if err != nil {
				b.Fatal(err)
			}
			_, err = r.api.ContainerStart(context.Background(), c.ID, client.ContainerStartOptions{})
			b.StopTimer()
			if err != nil {
				b.Fatal(err)
			}
			if err := r.remove(context.Background(), c.ID); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
