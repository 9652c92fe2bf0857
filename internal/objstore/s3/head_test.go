package s3_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

func headers(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func TestTheHeadersOfAnAnswer(t *testing.T) {
	t.Parallel()
	const sum = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
	for _, tt := range []struct {
		name   string
		header map[string]string
		check  func(a objstore.Attrs) bool
	}{
		{"the default class has no name", headers("X-Amz-Storage-Class", "STANDARD"), func(a objstore.Attrs) bool { return a.StorageClass == "" && !a.Archived }},
		{"a class that is read at once", headers("X-Amz-Storage-Class", "GLACIER_IR"), func(a objstore.Attrs) bool { return a.StorageClass == "GLACIER_IR" && !a.Archived }},
		{"an archive", headers("X-Amz-Storage-Class", "GLACIER"), func(a objstore.Attrs) bool { return a.StorageClass == "GLACIER" && a.Archived }},
		{"a deep archive", headers("X-Amz-Storage-Class", "DEEP_ARCHIVE"), func(a objstore.Attrs) bool { return a.Archived }},
		{"tiering that has archived", headers("X-Amz-Storage-Class", "INTELLIGENT_TIERING", "X-Amz-Archive-Status", "ARCHIVE_ACCESS"), func(a objstore.Attrs) bool { return a.Archived }},
		{"tiering that has not", headers("X-Amz-Storage-Class", "INTELLIGENT_TIERING"), func(a objstore.Attrs) bool { return !a.Archived }},
		{"an archive being restored", headers("X-Amz-Storage-Class", "GLACIER", "X-Amz-Restore", `ongoing-request="true"`), func(a objstore.Attrs) bool { return a.Archived }},
		{"an archive that was restored", headers("X-Amz-Storage-Class", "GLACIER", "X-Amz-Restore", `ongoing-request="false", expiry-date="Fri, 21 Dec 2040 00:00:00 GMT"`), func(a objstore.Attrs) bool { return !a.Archived }},
		{"a version", headers("X-Amz-Version-Id", "v1"), func(a objstore.Attrs) bool { return a.VersionID == "v1" }},
		{"a time that means unknown", headers("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT"), func(a objstore.Attrs) bool { return a.ModTime.IsZero() }},
		{"a request id", headers("X-Amz-Request-Id", "ABC"), func(a objstore.Attrs) bool { return a.RequestID == "ABC" }},
		{"a clock", headers("Date", "Wed, 01 Jul 2026 12:00:00 GMT"), func(a objstore.Attrs) bool { return a.ServerTime.Equal(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)) }},
		{"a CRC", headers("X-Amz-Checksum-Crc32c", "yZRlqg==", "X-Amz-Checksum-Type", "FULL_OBJECT"), func(a objstore.Attrs) bool { return a.Checksums["crc32c"] == "crc32c:yZRlqg==" }},
		{"a digest, in hex", headers("X-Amz-Checksum-Sha256", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="), func(a objstore.Attrs) bool { return a.Checksums["sha256"] == "sha256:"+sum }},
		{"a checksum of parts is not one of the object", headers("X-Amz-Checksum-Crc32c", "yZRlqg==", "X-Amz-Checksum-Type", "COMPOSITE"), func(a objstore.Attrs) bool { return len(a.Checksums) == 0 }},
		{"nor one that says so itself", headers("X-Amz-Checksum-Crc32c", "yZRlqg==-2"), func(a objstore.Attrs) bool { return len(a.Checksums) == 0 }},
		{"nor one of unknown type of an object put in parts", headers("X-Amz-Checksum-Crc32c", "yZRlqg==", "Etag", `"d41d8cd98f00b204e9800998ecf8427e-2"`), func(a objstore.Attrs) bool { return len(a.Checksums) == 0 }},
		{"an object put in parts may have one of its own", headers("X-Amz-Checksum-Crc32c", "yZRlqg==", "X-Amz-Checksum-Type", "FULL_OBJECT", "Etag", `"d41d8cd98f00b204e9800998ecf8427e-2"`), func(a objstore.Attrs) bool { return a.Checksums["crc32c"] == "crc32c:yZRlqg==" }},
		{"a type that is not known says nothing", headers("X-Amz-Checksum-Crc32c", "yZRlqg==", "X-Amz-Checksum-Type", "NEW"), func(a objstore.Attrs) bool { return len(a.Checksums) == 0 }},
		{"what has another length is no checksum", headers("X-Amz-Checksum-Sha256", "yZRlqg==", "X-Amz-Checksum-Crc32c", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="), func(a objstore.Attrs) bool { return len(a.Checksums) == 0 }},
		{"an ETag is no MD5", headers("Etag", `"d41d8cd98f00b204e9800998ecf8427e"`), func(a objstore.Attrs) bool {
			return a.ETag == "d41d8cd98f00b204e9800998ecf8427e" && len(a.Checksums) == 0
		}},
		{"an MD5 that is told as one", headers("X-Amz-Checksum-Md5", "1B2M2Y8AsgTpgAmY7PhCfg==", "X-Amz-Checksum-Type", "FULL_OBJECT"), func(a objstore.Attrs) bool { return a.Checksums["md5"] == "md5:d41d8cd98f00b204e9800998ecf8427e" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := servertest.S3(t)
			srv.Put(t, "k", []byte("0123456789"))
			srv.Add(servertest.Rule{Op: "HEAD", Header: tt.header}, servertest.Rule{Op: "GET", Key: "k", Header: tt.header})
			s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
			rc, got, err := s.Get(t.Context(), root.Join("k"), objstore.Range{})
			if err != nil || !tt.check(got) || got.Size != 10 {
				t.Fatalf("get: %+v, %v", got, err)
			}
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
			for name, ask := range looks(s) {
				if a, err := ask(t.Context(), root.Join("k")); err != nil || !tt.check(a) || a.Size != 10 {
					t.Errorf("%s: %+v, %v", name, a, err)
				}
			}
		})
	}
}

func looks(s *s3.Store) map[string]func(context.Context, objstore.Location) (objstore.Attrs, error) {
	return map[string]func(context.Context, objstore.Location) (objstore.Attrs, error){"stat": s.Stat, "restat": s.Restat, "probe": s.Probe}
}

// TestStoredChecksums are asked for where the options say so, from a server that keeps
// them, for whole bodies and for one put in parts.
func TestStoredChecksums(t *testing.T) {
	t.Parallel()
	srv := servertest.Proxy(t, servertest.Versitygw(t))
	const sum = "sha256:b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
	_, err := srv.Client().PutObject(t.Context(), &awss3.PutObjectInput{
		Bucket: aws.String(srv.Bucket), Key: aws.String("k"), Body: strings.NewReader("hello world"), ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range []s3.Options{{}, {HeadOracle: true}, {Checksums: true}, {Checksums: true, HeadOracle: true}} {
		s, root := bucket(t, client(t, srv, opts), srv.Bucket)
		for _, op := range heads {
			srv.ClearLog()
			a, err := looks(s)[op](t.Context(), root.Join("k"))
			if want := map[bool]string{true: sum}[opts.Checksums]; err != nil || a.Checksums["sha256"] != want || a.Size != 11 {
				t.Errorf("%s with %+v: %+v, %v", op, opts, a, err)
			}
			if n := len(srv.Requests()); n != 1 {
				t.Errorf("%s with %+v: %d requests", op, opts, n)
			}
		}
	}
}

// TestChecksumsUnderAKey: where stored checksums need a right that is not there, the
// object is looked at without them.
func TestChecksumsUnderAKey(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Put(t, "k", []byte("x"))
	for _, opts := range []s3.Options{{Checksums: true}, {Checksums: true, HeadOracle: true}} {
		s, root := bucket(t, client(t, srv, opts), srv.Bucket)
		for _, op := range heads {
			srv.ClearRules()
			srv.Add(servertest.Rule{Op: "HEAD", Count: 1, Status: http.StatusForbidden})
			if err := ask(t.Context(), s, root.Join("k"), op); err != nil {
				t.Errorf("%s: %v", op, err)
			}
			srv.ClearRules()
			srv.Add(servertest.Rule{Op: "HEAD", Status: http.StatusForbidden})
			wantKind(t, op, ask(t.Context(), s, root.Join("k"), op), objstore.ErrDenied)
			// The second question may not turn a denial into anything else.
			srv.ClearRules()
			srv.Add(servertest.Rule{Op: "HEAD", Count: 1, Status: http.StatusForbidden}, servertest.Rule{Op: "HEAD", Status: http.StatusNotFound})
			wantKind(t, op, ask(t.Context(), s, root.Join("k"), op), objstore.ErrDenied)
		}
	}
}

func TestADeleteMarkerIsTold(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Add(servertest.Rule{Status: 404, Code: "NoSuchKey", Header: headers("X-Amz-Delete-Marker", "true")})
	for _, opts := range []s3.Options{{}, {HeadOracle: true}} {
		s, root := bucket(t, client(t, srv, opts), srv.Bucket)
		for _, op := range ops(heads, gets) {
			if e := wantKind(t, op, ask(t.Context(), s, root.Join("k"), op), objstore.ErrNotExist); !e.DeleteMarker {
				t.Errorf("%s: %+v", op, e)
			}
		}
	}
}

func TestWithoutContentLengthTheSizeIsUnknown(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Put(t, "k", []byte("0123456789"))
	srv.Add(servertest.Rule{Op: "HEAD", NoContentLength: true})
	for _, opts := range []s3.Options{{}, {HeadOracle: true}} {
		s, root := bucket(t, client(t, srv, opts), srv.Bucket)
		for _, name := range heads {
			if a, err := looks(s)[name](t.Context(), root.Join("k")); err != nil || a.Size != objstore.Unknown || a.ETag == "" {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
	}
}

// TestBothHeadsAgree: the fast path and the SDK's HeadObject give the same answer for
// every odd key, there and not there, and put the same path on the wire.
func TestBothHeadsAgree(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *servertest.Server{
		"in process": servertest.S3,
		"versitygw":  func(t testing.TB) *servertest.Server { return servertest.Proxy(t, servertest.Versitygw(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t)
			fast, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
			oracle, _ := bucket(t, client(t, srv, s3.Options{HeadOracle: true}), srv.Bucket)
			for _, key := range append([]string{"tab\there", "\x7f", "ctrl\x01", "a+b c", "~._-", "ÿ\u200b", "x/../../y", "/lead", "//lead", "/"}, objstoretest.OddKeys...) {
				if onPosix(key) || name == "in process" {
					srv.Put(t, key, []byte(key))
				}
				for _, k := range []string{key, key + "-absent"} {
					srv.ClearLog()
					a, errA := fast.Stat(t.Context(), root.Join(k))
					b, errB := oracle.Stat(t.Context(), root.Join(k))
					opts := []cmp.Option{cmpopts.IgnoreFields(objstore.Attrs{}, "RequestID", "ServerTime")}
					if diff := cmp.Diff(b, a, opts...); diff != "" {
						t.Errorf("%q (-oracle +fast):\n%s", k, diff)
					}
					if (errA == nil) != (errB == nil) || errA != nil && errA.Error() != errB.Error() {
						t.Errorf("%q: oracle %v, fast %v", k, errB, errA)
					}
					if errA == nil && a.Size != int64(len(k)) {
						t.Errorf("%q: size %d", k, a.Size)
					}
					if log := srv.Requests(); len(log) != 2 || log[0].Path != log[1].Path || log[0].Op != "HEAD" || log[1].Op != "HEAD" ||
						log[0].UserAgent != "reconcile" || !strings.HasPrefix(log[1].UserAgent, "aws-sdk-go-v2/") {
						t.Errorf("%q on the wire: %+v", k, log)
					}
				}
			}
		})
	}
}

func TestRestatUsesAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Put(t, "k", []byte("x"))
	s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
	conns := map[string]map[string]bool{}
	for _, op := range heads {
		srv.ClearLog()
		for range 5 {
			if err := ask(t.Context(), s, root.Join("k"), op); err != nil {
				t.Fatal(err)
			}
		}
		conns[op] = map[string]bool{}
		for _, r := range srv.Requests() {
			conns[op][r.RemoteAddr] = true
		}
	}
	if len(conns["stat"]) != 1 || len(conns["restat"]) != 5 {
		t.Errorf("5 stats on %d connections, 5 restats on %d", len(conns["stat"]), len(conns["restat"]))
	}
}

func TestAHostWhoseClockIsOffIsTold(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	srv.Add(servertest.Rule{Status: 403, Code: "RequestTimeTooSkewed", Header: headers("Date", time.Now().Add(-2*time.Hour).UTC().Format(http.TimeFormat))})
	s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
	e := wantKind(t, "stat", ask(t.Context(), s, root.Join("k"), "stat"), objstore.ErrDenied)
	if want := "the clock of this host is off by 2h0m0s"; !contains(e, want) {
		t.Errorf("got %v", e)
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second, "soon": 0, "-1": 0,
		now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		srv := servertest.S3(t)
		srv.Add(servertest.Rule{Status: 503, Code: "SlowDown", Header: headers("Retry-After", value, "Date", now.Format(http.TimeFormat))})
		s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
		for _, op := range []string{"stat", "restat", "get"} {
			if e := wantKind(t, op, ask(t.Context(), s, root.Join("k"), op), objstore.ErrThrottled); e.RetryAfter != want {
				t.Errorf("%s: Retry-After %q: %s", op, value, e.RetryAfter)
			}
		}
	}
}
