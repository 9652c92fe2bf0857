package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Versioning implements [objstore.VersioningTeller] with GetBucketVersioning, which
// needs the right s3:GetBucketVersioning. A configuration without a status is that of
// a bucket whose versioning was never enabled.
func (s *Store) Versioning(ctx context.Context, loc objstore.Location) (objstore.Versioning, error) {
	if err := s.own("versioning", loc, false); err != nil {
		return "", err
	}
	out, err := s.sdk.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: aws.String(loc.Bucket)}, answeredBy("VersioningConfiguration"))
	if err != nil {
		return "", s.fromSDK(ctx, "versioning", loc, err)
	}
	switch out.Status {
	case "":
		return objstore.VersioningNever, nil
	case types.BucketVersioningStatusEnabled:
		return objstore.VersioningEnabled, nil
	case types.BucketVersioningStatusSuspended:
		return objstore.VersioningSuspended, nil
	}
	return "", &objstore.Error{Op: "versioning", Location: loc, Status: statusOf(out.ResultMetadata), Err: fmt.Errorf("%w: versioning status %q", errUnexpected, scrub(string(out.Status)))}
}

// maxProlog is how far into an answer its first element may begin.
const maxProlog = 4096

// answeredBy refuses a success whose body is none of the XML elements that servers
// answer the operation with. The SDK reads any element, and none at all, as an empty answer: from a
// server that does not know "?versions" or "?versioning" and lists the bucket's objects
// instead, that would be an explicit "no versions".
func answeredBy(elements ...string) func(*s3.Options) {
	check := middleware.DeserializeMiddlewareFunc("AnsweredBy", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, md, err := next.HandleDeserialize(ctx, in)
		resp, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok || resp.StatusCode < 200 || resp.StatusCode > 299 {
			return out, md, err
		}
		var seen bytes.Buffer
		got, err := firstElement(io.TeeReader(io.LimitReader(resp.Body, maxProlog), &seen))
		if err == nil && !slices.Contains(elements, got) {
			err = fmt.Errorf("%w: <%s> instead of <%s>", errUnexpected, scrub(got), elements[0])
		}
		resp.Body = &rejoined{io.MultiReader(&seen, resp.Body), resp.Body}
		return out, md, err
	})
	return func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(check, middleware.After)
		})
	}
}

// firstElement is the local name of the first element of an XML text.
func firstElement(r io.Reader) (string, error) {
	d := xml.NewDecoder(r)
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // names are ASCII
	for {
		t, err := d.Token()
		if err != nil {
			return "", fmt.Errorf("%w: no XML", errUnexpected)
		}
		if start, ok := t.(xml.StartElement); ok {
			return start.Name.Local, nil
		}
	}
}

type rejoined struct {
	io.Reader
	io.Closer
}
