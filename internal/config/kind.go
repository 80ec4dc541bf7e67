package config

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// days is a setting in whole days; 0 is no bound.
func days(field func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 0 || n > 36500 {
			return errors.New("must be a whole number of days, 0 or more")
		}
		*field(s) = time.Duration(n) * 24 * time.Hour
		return nil
	}
}

// loopback is a setting that names an address of this machine alone; the empty text is none. Names are refused, since what
// they stand for may change.
func loopback(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		if v == "" {
			*field(s) = ""
			return nil
		}
		host, port, err := net.SplitHostPort(v)
		if host == "localhost" {
			host = "127.0.0.1"
		}
		ip, ipErr := netip.ParseAddr(host)
		n, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || ipErr != nil || portErr != nil || !ip.IsLoopback() || ip.Zone() != "" {
			return errors.New("must be a loopback address with a port, for example 127.0.0.1:9464")
		}
		*field(s) = netip.AddrPortFrom(ip, uint16(n)).String()
		return nil
	}
}
