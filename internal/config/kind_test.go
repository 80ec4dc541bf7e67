package config

import "testing"

func TestMetricsListenIsLoopbackOnly(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]string{
		"": "", "127.0.0.1:9464": "127.0.0.1:9464", "127.1.2.3:1": "127.1.2.3:1", "[::1]:9464": "[::1]:9464", "localhost:80": "127.0.0.1:80", "127.0.0.1:0": "127.0.0.1:0",
		"0.0.0.0:1": "-", ":9464": "-", "[::]:1": "-", "10.0.0.1:1": "-", "example.org:1": "-", "127.0.0.1": "-", "127.0.0.1:99999": "-", "[fe80::1%lo]:1": "-", "[::ffff:10.0.0.1]:1": "-",
	} {
		var s Settings
		err := loopback(func(s *Settings) *string { return &s.MetricsListen })(&s, v)
		if want == "-" && err == nil || want != "-" && (err != nil || s.MetricsListen != want) {
			t.Errorf("%q: %q, %v; want %q", v, s.MetricsListen, err, want)
		}
	}
}
