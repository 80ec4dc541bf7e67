package sandbox

import (
	"regexp"
	"strings"
)

// credentialStart matches a value that begins like a well-known kind of key; credentialWithin one that carries such a key,
// a JSON web token or a PEM block somewhere (spec/host.md section 12.5).
var (
	credentialStart  = regexp.MustCompile(`^\s*(?:sk-\S{4}|gh[a-z]_\S|github_pat_|xox[a-z]-|AKIA[0-9A-Z]{4})`)
	credentialWithin = regexp.MustCompile(`(?:^|[^0-9A-Za-z])(?:sk-[0-9A-Za-z_-]{8}|gh[a-z]_[0-9A-Za-z]{8}|github_pat_[0-9A-Za-z_]{8}|` +
		`xox[a-z]-[0-9A-Za-z-]{8}|AKIA[0-9A-Z]{12}|eyJ[0-9A-Za-z_-]{6,}\.[0-9A-Za-z_-]{6,}\.[0-9A-Za-z_-]*)|-----BEGIN [A-Z0-9 ]+-----`)
)

// CredentialName reports whether a variable of that name is taken for a credential whatever it holds.
func CredentialName(name string) bool {
	n := strings.ToUpper(name)
	for _, suffix := range []string{"_KEY", "_TOKEN", "_SECRET"} {
		if strings.HasSuffix(n, suffix) {
			return true
		}
	}
	return strings.Contains(n, "PASSWORD")
}

// CredentialValue reports whether a value looks like a key, a token or a private key, under whatever name.
func CredentialValue(value string) bool {
	return credentialStart.MatchString(value) || credentialWithin.MatchString(value)
}

// loaderVariable reports whether a variable changes how a dynamic program loads. A runtime may start a program of its own
// outside with the sandbox's environment, and that one must not load what the spec names.
func loaderVariable(name string) bool {
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "MALLOC_") || name == "GLIBC_TUNABLES" ||
		name == "GCONV_PATH" || name == "LOCPATH" || name == "NLSPATH"
}
