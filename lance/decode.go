package lance

import (
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// DecodeManifest reads the bytes of a whole manifest file, which must not change
// afterwards. Errors are as those of ReadManifest.
func DecodeManifest(file []byte) (*Manifest, error) {
	m := &Manifest{file: file}
	if err := m.frame(); err != nil {
		return nil, err
	}
	if err := m.header(); err != nil {
		return nil, err
	}
	var err error
	if m.indexSection, err = m.section(m.indexOffset, "index section"); err != nil {
		return nil, err
	}
	if m.txnSection, err = m.section(m.txnOffset, "transaction"); err != nil {
		return nil, err
	}
	if err := m.survey(); err != nil {
		return nil, err
	}
	return m, nil
}

// frame finds the message in the file.
func (m *Manifest) frame() error {
	n := len(m.file)
	switch {
	case n == 0:
		return corrupt("empty file")
	case n < minManifestSize:
		return corrupt("%d bytes are too few for a manifest", n)
	case n > maxManifestSize:
		return fmt.Errorf("manifest of %d bytes: %w", n, ErrUnknownFormat)
	case string(m.file[n-4:]) != magic:
		return corrupt("it does not end in %q", magic)
	}
	foot := m.file[n-footerSize:]
	m.FooterMajor = binary.LittleEndian.Uint16(foot[8:])
	m.FooterMinor = binary.LittleEndian.Uint16(foot[10:])
	if m.FooterMajor != 0 || m.FooterMinor > 2 {
		return fmt.Errorf("manifest of file version %d.%d: %w", m.FooterMajor, m.FooterMinor, ErrUnknownFormat)
	}
	pos := binary.LittleEndian.Uint64(foot)
	if pos > uint64(n-minManifestSize) {
		return corrupt("the message is said to start at %d of %d bytes", pos, n)
	}
	m.pos = int(pos)
	size := binary.LittleEndian.Uint32(m.file[m.pos:])
	m.msg = m.file[m.pos+4 : n-footerSize : n-footerSize]
	if uint64(size) != uint64(len(m.msg)) {
		return corrupt("the message is said to be %d bytes, the frame leaves %d", size, len(m.msg))
	}
	return nil
}

// section cuts the message at an offset before the manifest's own.
func (m *Manifest) section(offset *uint64, what string) ([]byte, error) {
	if offset == nil {
		return nil, nil
	}
	if *offset > uint64(m.pos) || uint64(m.pos)-*offset < 4 {
		return nil, corrupt("the %s is said to start at %d, the manifest at %d", what, *offset, m.pos)
	}
	start := int(*offset) + 4
	size := binary.LittleEndian.Uint32(m.file[*offset:])
	if uint64(size) > uint64(m.pos-start) {
		return nil, corrupt("the %s is said to be %d bytes, %d are there", what, size, m.pos-start)
	}
	end := start + int(size)
	return m.file[start:end:end], nil
}

// header reads every field but the schema and the fragments.
func (m *Manifest) header() error {
	err := fields(m.msg, func(f wireField) error {
		switch f.num {
		case 1, 2:
			return f.is(protowire.BytesType)
		case 3:
			return f.uint64(&m.Version)
		case 5:
			return f.intoMap(&m.SchemaMetadata)
		case 6:
			m.indexOffset = new(uint64)
			return f.uint64(m.indexOffset)
		case 7:
			return m.timestamp(f)
		case 8:
			return f.string(&m.Tag)
		case 9:
			return f.uint64(&m.ReaderFlags)
		case 10:
			return f.uint64(&m.WriterFlags)
		case 11:
			m.MaxFragmentID = new(uint32)
			return f.uint32(m.MaxFragmentID)
		case 12:
			return f.string(&m.TransactionFile)
		case 13:
			return m.writer(f)
		case 14:
			return f.uint64(&m.NextRowID)
		case 15:
			return m.dataFormat(f)
		case 16:
			return f.intoMap(&m.Config)
		case 17:
			if f.typ == protowire.VarintType {
				m.BlobDatasetVersion = f.v
			}
		case 18:
			return m.basePath(f)
		case 19:
			return f.intoMap(&m.TableMetadata)
		case 20:
			return f.string(&m.Branch)
		case 21:
			m.txnOffset = new(uint64)
			return f.uint64(m.txnOffset)
		}
		return nil
	})
	if err == nil && m.TransactionFile != "" {
		err = checkPath([]byte(m.TransactionFile))
	}
	return err
}

func (m *Manifest) timestamp(f wireField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	var sec uint64
	var nano uint32
	err := fields(f.body, func(f wireField) error {
		switch f.num {
		case 1:
			return f.uint64(&sec)
		case 2:
			return f.uint32(&nano)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Beyond the year 9999 a time cannot be written down; such a clock tells nothing.
	if s := int64(sec); s > -62135596800 && s < 253402300800 && nano < 1e9 {
		m.Timestamp = time.Unix(s, int64(nano)).UTC()
	}
	return nil
}

func (m *Manifest) writer(f wireField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	w := &m.WriterVersion
	return fields(f.body, func(f wireField) error {
		switch f.num {
		case 1:
			return f.string(&w.Library)
		case 2:
			return f.string(&w.Version)
		case 3:
			return f.string(&w.Prerelease)
		case 4:
			return f.string(&w.Build)
		}
		return nil
	})
}

func (m *Manifest) dataFormat(f wireField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	return fields(f.body, func(f wireField) error {
		if f.num == 2 {
			return f.string(&m.DataFormat)
		}
		return nil
	})
}

func (m *Manifest) basePath(f wireField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	var b BasePath
	err := fields(f.body, func(f wireField) error {
		switch f.num {
		case 1:
			return f.uint32(&b.ID)
		case 2:
			return f.string(&b.Name)
		case 3:
			if err := f.is(protowire.VarintType); err != nil {
				return err
			}
			b.IsDatasetRoot = f.v != 0
		case 4:
			return f.string(&b.Path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if b.Path == "" {
		return corrupt("base path %d is empty", b.ID)
	}
	if m.bases == nil {
		m.bases = map[uint32]int{}
	}
	// Of two with one id the library takes the later.
	m.bases[b.ID] = len(m.BasePaths)
	m.BasePaths = append(m.BasePaths, b)
	return nil
}
