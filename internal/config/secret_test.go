package config

// NewSecret makes a Secret of s; outside of tests they come from the file.
func NewSecret(s string) Secret { return Secret{s} }
