package main

import (
	"context"
	"errors"
)

// claude is an agent with the real CLI: memory beside the CLI's own.
func claude(context.Context, *bundle) ([]row, error) {
	return nil, errors.New("not part of this run")
}
