//go:build !race

package runner_test

// simSeeds is how many worlds are played.
const simSeeds = 150
