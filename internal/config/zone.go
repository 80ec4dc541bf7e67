package config

import (
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // every program knows every zone, on any machine
)

// Zone is the time zone people see: the setting, else TZ, /etc/timezone, the target of /etc/localtime, else UTC
// (design.md section 5). An unknown name counts as absent.
func Zone(setting string, env func(string) string) *time.Location {
	candidates := []func() string{
		func() string { return setting },
		func() string { return strings.TrimPrefix(env("TZ"), ":") },
		func() string {
			b, err := os.ReadFile("/etc/timezone")
			if err != nil {
				return ""
			}
			return strings.TrimSpace(string(b))
		},
		func() string {
			target, err := filepath.EvalSymlinks("/etc/localtime")
			if err != nil {
				return ""
			}
			_, name, _ := strings.Cut(target, "/zoneinfo/")
			return name
		},
	}
	for _, c := range candidates {
		if name := c(); name != "" && name != "Local" {
			if loc, err := time.LoadLocation(name); err == nil {
				return loc
			}
		}
	}
	return time.UTC
}
