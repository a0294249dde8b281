package manifest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelKey returns the key with Prefix, and with '-' in place of characters that are not valid in the name of a label or annotation. It
// returns false if the name is still not valid.
func LabelKey(key string) (string, bool) {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, key)
	name := Prefix + strings.Trim(clean, "-_.")
	return name, len(validation.IsQualifiedName(name)) == 0
}

// LabelValue returns the value, and whether it is a valid label value: up to 63 letters, digits, '-', '_' and '.'.
func LabelValue(value string) (string, bool) {
	if len(validation.IsValidLabelValue(value)) > 0 {
		return "", false
	}
	return value, true
}

// IsReservedKey reports whether the CPI itself uses the label or annotation of this name.
func IsReservedKey(name string) bool {
	return slices.Contains(reservedKeys, name) || strings.HasPrefix(name, servicePrefix)
}
