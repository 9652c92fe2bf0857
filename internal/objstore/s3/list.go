package s3

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"sort"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// List implements [objstore.Lister] with ListObjectsV2.
func (s *Store) List(ctx context.Context, prefix objstore.Location, delimiter string) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		for token := ""; ; {
			page, next, err := s.ListPage(ctx, prefix, delimiter, token)
			if err != nil {
				yield(objstore.Attrs{}, err)
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// ListPage implements [objstore.Pager].
func (s *Store) ListPage(ctx context.Context, prefix objstore.Location, delimiter, token string) ([]objstore.Attrs, string, error) {
	if err := s.own("list", prefix, false); err != nil {
		return nil, "", err
	}
	in := &s3.ListObjectsV2Input{
		Bucket: aws.String(prefix.Bucket), Prefix: aws.String(prefix.Key),
		EncodingType: types.EncodingTypeUrl, // XML cannot carry every key
	}
	if delimiter != "" {
		in.Delimiter = aws.String(delimiter)
	}
	if token != "" {
		in.ContinuationToken = aws.String(token)
	}
	out, err := s.sdk.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, "", s.fromSDK(ctx, "list", prefix, err)
	}
	broken := func(what string) ([]objstore.Attrs, string, error) {
		return nil, "", &objstore.Error{Op: "list", Location: prefix, Err: fmt.Errorf("%w: %s", errUnexpected, what)}
	}
	if out.Name == nil && out.IsTruncated == nil {
		return broken("the answer is no listing") // the SDK reads an empty body as an empty listing
	}
	next := ""
	if aws.ToBool(out.IsTruncated) {
		next = aws.ToString(out.NextContinuationToken)
		if next == "" || next == token {
			return broken("more keys are announced than can be asked for")
		}
	}
	h := header(out.ResultMetadata)
	date, id := httpTime(h.Get("Date")), requestID(h)
	page := make([]objstore.Attrs, 0, len(out.Contents)+len(out.CommonPrefixes))
	for i := range out.Contents {
		o := &out.Contents[i]
		a := objstore.Attrs{Location: prefix, Size: objstore.Unknown, ETag: unquote(aws.ToString(o.ETag)), ModTime: known(o.LastModified),
			StorageClass: storageClass(string(o.StorageClass)), ServerTime: date, RequestID: id}
		if o.Size != nil {
			a.Size = *o.Size
		}
		a.Archived = archived(a.StorageClass, "", "")
		if a.Location.Key, err = decode(out.EncodingType, o.Key); err != nil {
			return broken("a key that cannot be read")
		}
		page = append(page, a)
	}
	for _, p := range out.CommonPrefixes {
		a := objstore.Attrs{Location: prefix, Size: objstore.Unknown, Prefix: true, ServerTime: date, RequestID: id}
		if a.Location.Key, err = decode(out.EncodingType, p.Prefix); err != nil {
			return broken("a key that cannot be read")
		}
		page = append(page, a)
	}
	if len(out.Contents) > 0 && len(out.CommonPrefixes) > 0 {
		sort.SliceStable(page, func(i, j int) bool { return page[i].Location.Key < page[j].Location.Key })
	}
	return page, next, nil
}

// decode undoes the encoding that the answer says it has: servers that do not know
// encoding-type leave keys as they are and do not mention it. The encoding is that
// of forms, with "+" for a space.
func decode(enc types.EncodingType, key *string) (string, error) {
	if enc != types.EncodingTypeUrl {
		return aws.ToString(key), nil
	}
	return url.QueryUnescape(aws.ToString(key))
}

// Versions implements [objstore.Versioner] with ListObjectVersions. A key sorts
// before every longer key that begins with it, so its versions are the first of the
// prefix, and the first other key ends them.
func (s *Store) Versions(ctx context.Context, loc objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return func(yield func(objstore.Attrs, error) bool) {
		if err := s.own("versions", loc, true); err != nil {
			yield(objstore.Attrs{}, err)
			return
		}
		in := &s3.ListObjectVersionsInput{Bucket: aws.String(loc.Bucket), Prefix: aws.String(loc.Key), EncodingType: types.EncodingTypeUrl}
		for {
			out, err := s.sdk.ListObjectVersions(ctx, in, answeredBy("ListVersionsResult", "ListBucketVersionsResult"))
			if err != nil {
				yield(objstore.Attrs{}, s.fromSDK(ctx, "versions", loc, err))
				return
			}
			page, past, err := versions(loc, out)
			if out.Name == nil && out.IsTruncated == nil {
				err = fmt.Errorf("%w: the answer is no listing", errUnexpected)
			}
			if err != nil {
				yield(objstore.Attrs{}, &objstore.Error{Op: "versions", Location: loc, Err: err})
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
			}
			if past || !aws.ToBool(out.IsTruncated) {
				return
			}
			key, err := decode(out.EncodingType, out.NextKeyMarker)
			if err != nil || key == "" || key == aws.ToString(in.KeyMarker) && aws.ToString(out.NextVersionIdMarker) == aws.ToString(in.VersionIdMarker) {
				yield(objstore.Attrs{}, &objstore.Error{Op: "versions", Location: loc, Err: fmt.Errorf("%w: more versions are announced than can be asked for", errUnexpected)})
				return
			}
			if key > loc.Key {
				return // the markers name the last entry: all of this key's came before
			}
			in.KeyMarker, in.VersionIdMarker = aws.String(key), out.NextVersionIdMarker
		}
	}
}

// versions picks the versions of exactly loc out of one page, newest first; past
// reports that other keys have begun. The SDK hands versions and delete markers out
// as two lists, each in the store's order, so they are merged by time; of equal
// times the latest one leads.
func versions(loc objstore.Location, out *s3.ListObjectVersionsOutput) (page []objstore.Attrs, past bool, err error) {
	h := header(out.ResultMetadata)
	date, id := httpTime(h.Get("Date")), requestID(h)
	add := func(key *string, a objstore.Attrs) {
		k, derr := decode(out.EncodingType, key)
		switch {
		case derr != nil:
			err = fmt.Errorf("%w: a key that cannot be read", errUnexpected)
		case k != loc.Key:
			past = true
		default:
			a.Location, a.ServerTime, a.RequestID = loc, date, id
			page = append(page, a)
		}
	}
	for i := range out.Versions {
		v := &out.Versions[i]
		a := objstore.Attrs{Size: objstore.Unknown, ETag: unquote(aws.ToString(v.ETag)), VersionID: aws.ToString(v.VersionId),
			ModTime: known(v.LastModified), StorageClass: storageClass(string(v.StorageClass)), IsLatest: aws.ToBool(v.IsLatest)}
		if v.Size != nil {
			a.Size = *v.Size
		}
		a.Archived = archived(a.StorageClass, "", "")
		add(v.Key, a)
	}
	for i := range out.DeleteMarkers {
		m := &out.DeleteMarkers[i]
		add(m.Key, objstore.Attrs{Size: objstore.Unknown, VersionID: aws.ToString(m.VersionId), ModTime: known(m.LastModified),
			DeleteMarker: true, IsLatest: aws.ToBool(m.IsLatest)})
	}
	sort.SliceStable(page, func(i, j int) bool {
		if page[i].IsLatest != page[j].IsLatest {
			return page[i].IsLatest
		}
		return page[i].ModTime.After(page[j].ModTime)
	})
	return page, past, err
}
