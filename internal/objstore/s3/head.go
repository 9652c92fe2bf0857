package s3

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// head asks for single objects. The SDK's HeadObject spends most of its time on
// building a stack of middleware per request; a signature and a round trip are
// all that a HEAD needs.
type head struct {
	client *Client
	url    url.URL // of the bucket
	region string
	signer *v4.Signer
	now    func() time.Time
}

// emptyHash is the SHA-256 of nothing, in hex: the payload of every HEAD.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Stat implements [objstore.Statter] with one HEAD.
func (s *Store) Stat(ctx context.Context, loc objstore.Location) (objstore.Attrs, error) {
	if err := s.own("stat", loc, true); err != nil {
		return objstore.Attrs{}, err
	}
	return s.withChecksums(func(checksums bool) (objstore.Attrs, error) {
		if s.head == nil {
			return s.headObject(ctx, s.sdk, "stat", loc, "", checksums)
		}
		return s.stat(ctx, loc, checksums)
	})
}

func (s *Store) stat(ctx context.Context, loc objstore.Location, checksums bool) (objstore.Attrs, error) {
	req, err := s.head.request(ctx, loc.Key, checksums)
	if err != nil {
		return objstore.Attrs{}, s.noAnswer(ctx, "stat", loc, err)
	}
	resp, err := s.client.pool.RoundTrip(req)
	if err != nil {
		return objstore.Attrs{}, s.noAnswer(ctx, "stat", loc, err)
	}
	_ = resp.Body.Close() // a HEAD has none
	if resp.StatusCode != http.StatusOK {
		return objstore.Attrs{}, answer("stat", loc, reply{status: resp.StatusCode, header: resp.Header})
	}
	a := attrs(loc, resp.Header)
	a.Size = resp.ContentLength // -1 without the header, which is Unknown
	return a, nil
}

// request is a signed HEAD of one key.
func (h *head) request(ctx context.Context, key string, checksums bool) (*http.Request, error) {
	creds, err := h.client.creds.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	u := h.url
	base := strings.TrimSuffix(u.EscapedPath(), "/")
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + key
	u.RawPath = base + "/" + escape(key)
	req := (&http.Request{
		Method: http.MethodHead, URL: &u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"X-Amz-Content-Sha256": {emptyHash}, "User-Agent": {"reconcile"}},
	}).WithContext(ctx)
	if checksums {
		req.Header["X-Amz-Checksum-Mode"] = []string{"ENABLED"}
	}
	if err := h.signer.SignHTTP(ctx, creds, req, emptyHash, "s3", h.region, h.now()); err != nil {
		return nil, fmt.Errorf("sign request: %w", err)
	}
	return req, nil
}

// escape is the rule by which S3 reads and signs paths: every byte but
// A–Z a–z 0–9 - _ . ~ and / becomes %XX, upper case.
func escape(key string) string {
	const hex = "0123456789ABCDEF"
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == '~' || c == '/'
	}
	n := 0
	for i := 0; i < len(key); i++ {
		if !plain(key[i]) {
			n++
		}
	}
	if n == 0 {
		return key
	}
	b := make([]byte, 0, len(key)+2*n)
	for i := 0; i < len(key); i++ {
		if c := key[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}
