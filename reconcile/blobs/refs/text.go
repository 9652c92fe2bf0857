package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// maxRow bounds the bytes of one row of a text file.
const maxRow = 1 << 20

var errTooLong = fmt.Errorf("longer than the %d bytes that are read of one row", maxRow)

// textFile is a source of rows in a text file.
type textFile struct {
	r     objstore.Reader
	at    objstore.Location
	cols  Columns
	opts  Options
	start func(*textFile, *text) (opened, error)
}

func (f *textFile) open(ctx context.Context, _ string) (opened, error) {
	if f.cols.Key == "" {
		return nil, errNoKeyColumn
	}
	t, err := openText(ctx, f.r, f.at, f.opts.chunk)
	if err != nil {
		return nil, err
	}
	in, err := f.start(f, t)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.at, err)
	}
	return in, nil
}

var errNoKeyColumn = errors.New("no column is named as the key")

func (f *textFile) namedSince(ctx context.Context) (time.Time, error) {
	a, err := f.r.Stat(ctx, f.at)
	return namedSince(a), err
}

// skipLine consumes everything up to and with the next line feed.
func (t *text) skipLine() error {
	for {
		if i := bytes.IndexByte(t.ahead(), '\n'); i >= 0 {
			t.pos += i + 1
			return nil
		}
		t.pos = len(t.buf)
		if t.end {
			return nil
		}
		if err := t.fill(); err != nil {
			return err
		}
	}
}

// line gives the next line without its end; ok is false after the last. errTooLong:
// the line was left out.
func (t *text) line() (b []byte, ok bool, err error) {
	for {
		b = t.ahead()
		i := bytes.IndexByte(b, '\n')
		switch {
		case i > maxRow, i < 0 && len(b) > maxRow:
			if err := t.skipLine(); err != nil {
				return nil, false, err
			}
			return nil, true, errTooLong
		case i >= 0:
			t.pos += i + 1
			return b[:i], true, nil
		case t.end:
			t.pos = len(t.buf)
			return b, len(b) > 0, nil
		}
		if err := t.fill(); err != nil {
			return nil, false, err
		}
	}
}
