package explain

import (
	"strings"
	"testing"
)

func TestSecretsAreTakenOutAndNamesStay(t *testing.T) {
	t.Parallel()
	const object = "rk/x.rollout.lance/data/000101101010001100110101c7ddb541a4be9d99d6a3cd3b5e.lance"
	for name, text := range map[string]string{
		"a presigned address":      "GET https://h/" + object + "?X-Amz-Credential=hunter2%2F20260101&X-Amz-Signature=hunter2&x=1 404 Not Found",
		"a shared access address":  "GET https://acc.blob.core.windows.net/" + object + "?sv=2020&sig=hunter2%3D BlobNotFound",
		"a path with a query":      "Not found: " + object + "?X-Amz-Signature=hunter2&X-Amz-Date=1, /src/x.rs:1:2",
		"a query of other words":   "Not found: " + object + "?k=hunter2/a,b&e=1: HTTP 404",
		"credentials in a URI":     "Not found: s3://key:hunter2@" + object,
		"a header":                 "Not found: " + object + "\nAuthorization: Bearer hunter2\n",
		"a header as JSON":         `Not found: ` + object + ` {"authorization": "Basic hunter2"}`,
		"a signed header":          "Not found: " + object + " Authorization: AWS4-HMAC-SHA256 Credential=hunter2/20260101, Signature=hunter2",
		"storage options":          "Not found: " + object + ` options {"aws_secret_access_key": "hunter2", "account_key":"hunter2"}`,
		"storage options, printed": "Not found: " + object + " aws_session_token=hunter2 password=hunter2",
	} {
		got := Redact(text)
		if strings.Contains(got, "hunter2") || !strings.Contains(got, object) {
			t.Errorf("%s: %s", name, got)
		}
		if again := Redact(got); again != got {
			t.Errorf("%s: redacted twice it is %s", name, again)
		}
	}
	if got := Redact("id AKIAABCDEFGHIJKLMNOP is unknown"); got != "id … is unknown" {
		t.Error(got)
	}
	for _, plain := range []string{"Not found: " + object, "abfss://container@acc.dfs.core.windows.net/" + object, "Table 'secret' was not found", "the tokens.lance of the index"} {
		if got := Redact(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}
