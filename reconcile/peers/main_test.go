package peers_test

import (
	"os"
	"strings"
	"testing"
)

// TestMain takes away everything that this machine may have set for AWS and for
// proxies, and gives the key pair of the servers in the tests.
func TestMain(m *testing.M) {
	for _, kv := range os.Environ() {
		k, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(k, "AWS_") || strings.HasSuffix(strings.ToLower(k), "_proxy") {
			if err := os.Unsetenv(k); err != nil {
				panic(err)
			}
		}
	}
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		if err := os.Setenv(k, v); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
