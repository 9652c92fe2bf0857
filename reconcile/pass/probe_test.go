package pass_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// answers is a store that answers creates in turn.
type answers struct {
	list []error
	n    int
}

func (a *answers) Create(context.Context, objstore.Location, io.Reader, int64) (objstore.Attrs, error) {
	a.n++
	return objstore.Attrs{}, a.list[a.n-1]
}

func TestTheConditionalWriteTestBelievesOnlyAnswers(t *testing.T) {
	t.Parallel()
	exist := &objstore.Error{Op: "PUT", Status: 412, Err: objstore.ErrExist}
	silent := &objstore.Error{Op: "PUT", Err: io.ErrUnexpectedEOF}
	denied := &objstore.Error{Op: "PUT", Status: 403, Err: objstore.ErrDenied}
	for _, tt := range []struct {
		name string
		list []error
		want error
	}{
		{"it is there already", []error{exist}, nil},
		{"it is made and then refused", []error{nil, exist}, nil},
		{"it is made twice", []error{nil, nil}, pass.ErrUnconditional},
		{"the first answer is lost", []error{silent, exist}, nil},
		{"the first never came there", []error{silent, nil, exist}, nil},
		{"the second answer is lost", []error{nil, silent, exist}, nil},
		{"the second answer is lost and the third accepts", []error{nil, silent, nil}, pass.ErrUnconditional},
		{"only one is accepted", []error{silent, silent, nil}, silent},
		{"no answer at all", []error{silent, silent, silent}, silent},
		{"it may not be written", []error{denied}, objstore.ErrDenied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := &answers{list: tt.list}
			err := pass.ProbeConditional(t.Context(), a, objstore.Location{Scheme: "s3", Bucket: "b", Key: "r"})
			if !errors.Is(err, tt.want) || a.n != len(tt.list) {
				t.Errorf("%v after %d creates, want %v after %d", err, a.n, tt.want, len(tt.list))
			}
		})
	}
}
