//go:build race

package runner_test

// simSeeds is how many worlds are played; the race detector makes each ten times as long.
const simSeeds = 150
