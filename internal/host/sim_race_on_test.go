//go:build race

package host

// simSeeds is how many worlds are played; the race detector makes each several times as long.
const simSeeds = 2
