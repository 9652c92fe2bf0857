package s3_test

import (
	"os"
	"strings"
	"testing"
)

// TestMain takes away everything that this machine may have set for AWS, and gives
// the key pair of the server in the tests.
func TestMain(m *testing.M) {
	for _, kv := range os.Environ() {
		if k, _, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "AWS_") && k != "AWS_CA_BUNDLE" {
			if err := os.Unsetenv(k); err != nil {
				panic(err)
			}
		}
	}
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": "adminsecret", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		if err := os.Setenv(k, v); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
