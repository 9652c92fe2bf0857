// Package s3 is an object store that speaks S3: AWS, or a server with an endpoint of
// its own.
//
// Credentials, region, endpoint, proxies and certificates follow the standard AWS
// environment and files. Stat is one HEAD signed by the SDK's signer and sent over
// one tuned transport, which costs a quarter of what the SDK's HeadObject costs;
// everything else goes through the SDK. The SDK never repeats a request here and a
// redirect is never followed: asking again is a decorator's work.
//
// What answers mean: a 404 is "no such object" only on HEAD or with the code
// NoSuchKey; 401 and 403 are [objstore.ErrDenied] whatever the cause; 429, 503 and
// the codes that ask to slow down are [objstore.ErrThrottled]; a redirect or a 400
// is a plain error that names its usual causes.
package s3

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyendpoints "github.com/aws/smithy-go/endpoints"

	smithyauth "github.com/aws/smithy-go/auth"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Options of a client. Empty fields follow the AWS environment and files.
type Options struct {
	// Endpoint is a URL. Credentials in it are refused.
	Endpoint string
	// Region; when nothing names one it is us-east-1.
	Region  string
	Profile string
	// RoleARN is assumed with the credentials found.
	RoleARN string
	// PathStyle is "auto" (or empty: on custom endpoints), "true" or "false".
	PathStyle string
	// HeadOracle answers Stat by the SDK's HeadObject.
	HeadOracle bool
	// Checksums asks for the stored checksums with each HEAD. On objects under a KMS key
	// that needs kms:Decrypt beside the right to look, so a HEAD that is denied is sent
	// once more without: where that is the rule, each look costs two requests.
	Checksums bool
	// MaxPut is the largest body that is sent in one request; 0 is S3's own limit of
	// 5 GiB. PartSize is the size of the parts of a larger one; 0 is 64 MiB, or as much
	// as 10,000 parts need.
	MaxPut, PartSize int64
	// MultipartConditions says whether the server holds to If-None-Match and If-Match
	// when an upload in parts is completed: "auto" (or empty: AWS does, of a custom
	// endpoint it is not known), "true" or "false". A server that ignores them would
	// overwrite what it must not, so where it is not known larger bodies are refused.
	MultipartConditions string
	// MaxIdleConns is how many connections are kept; 0 is 256. It should not be below
	// the number of requests in flight, or each request pays for a new connection.
	MaxIdleConns int
}

// Client is the way to one service as one principal. Stores of single buckets share
// its connections and credentials.
type Client struct {
	opts  Options
	host  string // of a custom endpoint; empty for AWS
	creds aws.CredentialsProvider
	base  s3.Options // as the SDK resolved them
	pool  *http.Transport
	once  *http.Transport // a connection per request
}

const defaultIdleConns = 256

// NewClient reads the AWS environment and files. It does not touch the network and
// does not look for credentials yet.
func NewClient(ctx context.Context, opts Options) (*Client, error) {
	if err := checkEndpoint(opts.Endpoint); err != nil {
		return nil, err
	}
	idle := opts.MaxIdleConns
	if idle <= 0 {
		idle = defaultIdleConns
	}
	// Options on the SDK's own client type, because AWS_CA_BUNDLE can only be added to that.
	httpClient := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns = 0
		t.MaxIdleConnsPerHost = idle
		t.DisableCompression = true // sizes are of the stored bytes
	})
	// The SDK logs to stderr unless told otherwise; what matters is in its errors.
	load := []func(*config.LoadOptions) error{config.WithHTTPClient(httpClient), config.WithLogger(logging.Nop{})}
	if opts.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(opts.Profile))
	}
	if opts.Region != "" {
		load = append(load, config.WithRegion(opts.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("read aws configuration: %w", clean(err))
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if opts.RoleARN != "" {
		cfg.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), opts.RoleARN))
	}
	c := &Client{opts: opts, creds: provider{cfg.Credentials}, pool: transport(cfg.HTTPClient, idle)}
	c.once = c.pool.Clone()
	c.once.DisableKeepAlives = true
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if opts.Endpoint != "" {
			o.BaseEndpoint = aws.String(opts.Endpoint)
		}
		o.Credentials = c.creds
		o.Retryer = aws.NopRetryer{}
		o.HTTPClient = noRedirects(c.pool)
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	c.base = client.Options()
	if c.base.BaseEndpoint != nil {
		if err := checkEndpoint(*c.base.BaseEndpoint); err != nil {
			return nil, err
		}
		c.host = hostOf(*c.base.BaseEndpoint)
	}
	c.base.UsePathStyle = c.host != ""
	switch opts.PathStyle {
	case "", "auto":
	case "true":
		c.base.UsePathStyle = true
	case "false":
		c.base.UsePathStyle = false
	default:
		return nil, fmt.Errorf("s3 path style %q: not one of auto, true, false: %w", opts.PathStyle, fs.ErrInvalid)
	}
	switch opts.MultipartConditions {
	case "", "auto", "true", "false":
	default:
		return nil, fmt.Errorf("s3 multipart conditions %q: not one of auto, true, false: %w", opts.MultipartConditions, fs.ErrInvalid)
	}
	return c, nil
}

// transport is the pool that the SDK would use, certificates of AWS_CA_BUNDLE included.
func transport(client aws.HTTPClient, idle int) *http.Transport {
	b, ok := client.(*awshttp.BuildableClient)
	if !ok {
		b = awshttp.NewBuildableClient()
	}
	t := b.GetTransport()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.DisableCompression = 0, idle, true
	return t
}

// noRedirects hands a redirect out as the answer it is: following one would ask
// another place than the one that was named.
func noRedirects(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("s3 endpoint: not a URL: %w", fs.ErrInvalid) // the text may hold a password
	case u.User != nil:
		return fmt.Errorf("s3 endpoint %s: holds credentials; they belong in the environment: %w", u.Host, fs.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("s3 endpoint: not of the form http://host:port or https://host: %w", fs.ErrInvalid)
	}
	return nil
}

// hostOf is the host[:port] that names a custom endpoint in locations: lower case,
// without the default port; empty for AWS, whose many host names lead to one
// namespace of buckets.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	name := strings.ToLower(u.Hostname())
	if strings.HasSuffix(name, ".amazonaws.com") || strings.HasSuffix(name, ".amazonaws.com.cn") {
		return ""
	}
	port := u.Port()
	if port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		if strings.Contains(name, ":") {
			return "[" + name + "]"
		}
		return name
	}
	return net.JoinHostPort(name, port)
}

// Host is the host[:port] of the custom endpoint that the client talks to, as it
// stands in [objstore.Location]; empty for AWS.
func (c *Client) Host() string { return c.host }

// Close gives up idle connections.
func (c *Client) Close() {
	c.pool.CloseIdleConnections()
	c.once.CloseIdleConnections()
}

// provider marks every failure to get credentials as such.
type provider struct{ aws.CredentialsProvider }

func (p provider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if p.CredentialsProvider == nil {
		return aws.Credentials{}, &noCredentials{}
	}
	cr, err := p.CredentialsProvider.Retrieve(ctx)
	switch {
	case err == nil:
		return cr, nil
	case ctx.Err() != nil:
		return cr, ctx.Err()
	default:
		return cr, &noCredentials{clean(err)}
	}
}

// noCredentials matches [objstore.ErrNoCredentials] and says what to do next.
type noCredentials struct{ cause error }

func (e *noCredentials) Error() string {
	text := objstore.ErrNoCredentials.Error() + ": set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run under a role that the AWS chain finds"
	if e.cause != nil {
		text += " (" + e.cause.Error() + ")"
	}
	return text
}

func (e *noCredentials) Unwrap() error { return objstore.ErrNoCredentials }

// Store is an [objstore.Writer] over one bucket, safe for concurrent use.
type Store struct {
	client *Client
	bucket objstore.Location
	sdk    *s3.Client
	fresh  *s3.Client // a connection per request
	head   *head      // nil: Stat asks the SDK
}

var (
	_ objstore.Writer = (*Store)(nil)
	_ objstore.Pager  = (*Store)(nil)
)

// Bucket opens the bucket that loc lies in. It gets credentials, which may ask the
// network, and does not ask for the bucket. Without credentials the error matches
// [objstore.ErrNoCredentials]; a loc of another service matches [fs.ErrInvalid].
func (c *Client) Bucket(ctx context.Context, loc objstore.Location) (*Store, error) {
	fail := func(err error) (*Store, error) {
		return nil, &objstore.Error{Op: "open", Location: loc, Err: err}
	}
	if loc.Scheme != "s3" || loc.Bucket == "" || loc.Endpoint != c.host {
		return fail(fmt.Errorf("not a bucket of endpoint %q: %w", c.host, fs.ErrInvalid))
	}
	if _, err := c.creds.Retrieve(ctx); err != nil {
		return fail(err)
	}
	s := &Store{client: c, bucket: loc.Container(), sdk: s3.New(c.base)}
	once := c.base.Copy()
	once.HTTPClient = noRedirects(c.once)
	s.fresh = s3.New(once)
	if c.opts.HeadOracle {
		return s, nil
	}
	ep, err := c.base.EndpointResolverV2.ResolveEndpoint(ctx, s3.EndpointParameters{
		Bucket: aws.String(loc.Bucket), Region: aws.String(c.base.Region), Endpoint: c.base.BaseEndpoint,
		ForcePathStyle: aws.Bool(c.base.UsePathStyle), Accelerate: aws.Bool(c.base.UseAccelerate),
		UseFIPS:                        aws.Bool(c.base.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
		UseDualStack:                   aws.Bool(c.base.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
		UseArnRegion:                   aws.Bool(c.base.UseARNRegion),
		DisableMultiRegionAccessPoints: aws.Bool(c.base.DisableMultiRegionAccessPoints),
	})
	if err != nil {
		return fail(fmt.Errorf("resolve endpoint: %w", clean(err)))
	}
	s.head = newHead(c, ep)
	return s, nil
}

// newHead answers nil for buckets whose requests need more than a plain SigV4
// signature (directory buckets): those are asked through the SDK.
func newHead(c *Client, ep smithyendpoints.Endpoint) *head {
	h := &head{
		client: c, url: ep.URI, region: c.base.Region,
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		now:    time.Now,
	}
	opts, _ := smithyauth.GetAuthOptions(&ep.Properties)
	for _, o := range opts {
		if o.SchemeID != "sigv4" && o.SchemeID != smithyauth.SchemeIDSigV4 {
			continue
		}
		if name, ok := smithyhttp.GetSigV4SigningName(&o.SignerProperties); ok && name != "s3" {
			return nil
		}
		if region, ok := smithyhttp.GetSigV4SigningRegion(&o.SignerProperties); ok {
			h.region = region
		}
		return h
	}
	return nil
}

// own refuses locations of another bucket, and keys that name no object.
func (s *Store) own(op string, loc objstore.Location, needKey bool) error {
	if loc.Container() != s.bucket {
		return &objstore.Error{Op: op, Location: loc, Err: fmt.Errorf("not in bucket %s: %w", s.bucket.Canonical(), fs.ErrInvalid)}
	}
	if needKey && loc.Key == "" {
		return &objstore.Error{Op: op, Location: loc, Err: fmt.Errorf("no key: %w", fs.ErrInvalid)}
	}
	return nil
}
