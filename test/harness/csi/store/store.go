// Package store stores the driver's volumes, snapshots and nodes in a directory. Each has a JSON record. Volumes and snapshots also have
// an image file with their content; an image without a record is orphaned. Records are written atomically, because other processes
// read them. The package does not use devices or mounts.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrNotFound means that a record does not exist.
var ErrNotFound = errors.New("not found")

// Volume is the record of a volume.
type Volume struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Capacity int64  `json:"capacity"`
	// Node is the only node that can use the volume. If it is empty, any node can.
	Node string `json:"node"`
	// SourceSnapshot is the snapshot with the volume's initial content.
	SourceSnapshot string `json:"sourceSnapshot,omitempty"`
	// Published is the node that the volume is attached to.
	Published string `json:"published,omitempty"`
	// IOPS is a parameter of the VolumeAttributesClass.
	IOPS string `json:"iops,omitempty"`
}

// Snapshot is the record of a snapshot.
type Snapshot struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Source  string    `json:"source"`
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
}

// Store is the directory with the records and images.
type Store struct{ dir string }

// The kinds of records, which are also the names of their directories.
const (
	volumes   = "volumes"
	snapshots = "snapshots"
	nodes     = "nodes"
)

// Open opens the directory, and creates it if necessary. Any number of processes can open it.
func Open(dir string) (*Store, error) {
	for _, kind := range []string{volumes, snapshots, nodes} {
		if err := os.MkdirAll(filepath.Join(dir, kind), 0o700); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	return &Store{dir: dir}, nil
}

// VolumeImage returns the path of the file with a volume's content.
func (s *Store) VolumeImage(id string) string { return filepath.Join(s.dir, volumes, id+".img") }

// SnapshotImage returns the path of the file with a snapshot's content.
func (s *Store) SnapshotImage(id string) string { return filepath.Join(s.dir, snapshots, id+".img") }

// Volume returns the volume with the ID.
func (s *Store) Volume(id string) (Volume, error) { return read[Volume](s, volumes, id) }

// Snapshot returns the snapshot with the ID.
func (s *Store) Snapshot(id string) (Snapshot, error) { return read[Snapshot](s, snapshots, id) }

// Volumes returns all volumes, ordered by ID.
func (s *Store) Volumes() ([]Volume, error) { return list[Volume](s, volumes) }

// ImagesOn returns the images of the volumes that are bound or attached to the node.
func (s *Store) ImagesOn(node string) ([]string, error) {
	records, err := s.Volumes()
	if err != nil {
		return nil, err
	}
	var images []string
	for _, volume := range records {
		if volume.Node == node || volume.Published == node {
			images = append(images, s.VolumeImage(volume.ID))
		}
	}
	return images, nil
}

// Snapshots returns all snapshots, ordered by ID.
func (s *Store) Snapshots() ([]Snapshot, error) { return list[Snapshot](s, snapshots) }

// PutVolume writes the volume's record.
func (s *Store) PutVolume(volume Volume) error { return s.write(volumes, volume.ID, volume) }

// PutSnapshot writes the snapshot's record.
func (s *Store) PutSnapshot(snapshot Snapshot) error {
	return s.write(snapshots, snapshot.ID, snapshot)
}

// DeleteVolume removes the record, then the content.
func (s *Store) DeleteVolume(id string) error { return s.delete(volumes, id) }

// DeleteSnapshot removes the record, then the content.
func (s *Store) DeleteSnapshot(id string) error { return s.delete(snapshots, id) }

// AddNode writes the node's record.
func (s *Store) AddNode(name string) error { return s.write(nodes, name, struct{}{}) }

// HasNode reports whether the node has a record.
func (s *Store) HasNode(name string) (bool, error) { return s.has(nodes, name) }

// Nodes returns the names of all nodes, sorted.
func (s *Store) Nodes() ([]string, error) { return s.ids(nodes) }

// RemoveOrphans removes orphaned images and incomplete records. Only the process that creates volumes may call it, before it creates any.
func (s *Store) RemoveOrphans() error {
	for _, kind := range []string{volumes, snapshots} {
		entries, err := os.ReadDir(filepath.Join(s.dir, kind))
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		for _, entry := range entries {
			id, image := strings.CutSuffix(entry.Name(), ".img")
			keep := strings.HasSuffix(entry.Name(), ".json")
			if image {
				if keep, err = s.has(kind, id); err != nil {
					return fmt.Errorf("sweep: %w", err)
				}
			}
			if !keep {
				if err := os.Remove(filepath.Join(s.dir, kind, entry.Name())); err != nil {
					return fmt.Errorf("sweep: %w", err)
				}
			}
		}
	}
	return nil
}

func (s *Store) recordPath(kind, id string) string { return filepath.Join(s.dir, kind, id+".json") }

// validID reports whether the ID can be used as a file name.
func validID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.HasPrefix(id, ".") && !strings.ContainsAny(id, "/\x00")
}

func (s *Store) has(kind, id string) (bool, error) {
	if !validID(id) {
		return false, nil
	}
	_, err := os.Stat(s.recordPath(kind, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func read[T any](s *Store, kind, id string) (T, error) {
	var record T
	if !validID(id) {
		return record, fmt.Errorf("%q in %s: %w", id, kind, ErrNotFound)
	}
	raw, err := os.ReadFile(s.recordPath(kind, id))
	if errors.Is(err, fs.ErrNotExist) {
		return record, fmt.Errorf("%s in %s: %w", id, kind, ErrNotFound)
	}
	if err != nil {
		return record, err
	}
	if err := json.Unmarshal(raw, &record); err != nil {
		return record, fmt.Errorf("read %s: %w", s.recordPath(kind, id), err)
	}
	return record, nil
}

func (s *Store) ids(kind string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, kind))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		if id, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func list[T any](s *Store, kind string) ([]T, error) {
	ids, err := s.ids(kind)
	if err != nil {
		return nil, err
	}
	records := make([]T, 0, len(ids))
	for _, id := range ids {
		record, err := read[T](s, kind, id)
		if errors.Is(err, ErrNotFound) {
			continue // deleted in the meantime
		}
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// write replaces the record atomically: readers see the old or the new record, even after a crash.
func (s *Store) write(kind, id string, record any) error {
	if !validID(id) {
		return fmt.Errorf("%q is not a valid ID in %s", id, kind)
	}
	raw, err := json.Marshal(record)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Join(s.dir, kind), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // no-op after the rename
	defer file.Close()
	if _, err := file.Write(raw); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(file.Name(), s.recordPath(kind, id))
}

func (s *Store) delete(kind, id string) error {
	if !validID(id) {
		return nil
	}
	for _, file := range []string{s.recordPath(kind, id), filepath.Join(s.dir, kind, id+".img")} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
