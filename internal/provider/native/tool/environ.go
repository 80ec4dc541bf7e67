package tool

import "slices"

// Environ is an environment for a program that Close shall find.
func (b *Box) Environ(env map[string]string) []string {
	b.mu.Lock()
	b.next++
	b.mu.Unlock()
	return list(env, markName+"="+b.mark+".server.")
}

// list is an environment in a stable order.
func list(env map[string]string, more ...string) []string {
	out := make([]string, 0, len(env)+len(more))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return append(out, more...)
}
