// Package canary breaks documents in many ways, to test that no error shows a secret: each value that may be secret contains the word
// canary.
package canary

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Data is the word in base64.
const Data = "Y2FuYXJ5"

// IsIn reports whether the text shows a secret: the word, the word in base64, or its bytes.
func IsIn(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{"canary", strings.ToLower(Data), "99 97 110 97 114 121"},
		func(secret string) bool { return strings.Contains(text, secret) })
}

// Documents returns the document in JSON, whole and broken: in its syntax, and by the mutations. Values of printed keys are not
// secret, and not changed.
func Documents(document map[string]any, printed ...string) (documents []string) {
	for _, mutation := range mutations(document, printed...) {
		raw, err := json.Marshal(mutation)
		if err != nil {
			panic(err) // a document has only types of JSON
		}
		text := string(raw)
		documents = append(documents, text, text[:len(text)/3], text[:len(text)*2/3], text[:len(text)-1], "\t"+text+"canary",
			strings.Replace(text, "canary", "\tcanary: [", 1), strings.ReplaceAll(text, `"`, ""), strings.ReplaceAll(text, ":", ""))
	}
	return documents
}

// mutations returns the document, and copies of it in which one value is removed, repeated, cut off or has another type.
func mutations(document map[string]any, printed ...string) []any {
	all := []any{document}
	var visit func(value any, rebuild func(any) any)
	visit = func(value any, rebuild func(any) any) {
		for _, other := range []any{
			nil, true, 7, 1.5, "canary%zz", "canary\n", "((canary))", "/canary", "canary:1", -1, "http://a:canary#@b", []any{}, []any{"canary"},
			map[string]any{}, map[string]any{"k": "canary"},
		} {
			all = append(all, rebuild(other))
		}
		switch typed := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(typed)) {
				without := maps.Clone(typed)
				delete(without, key)
				all = append(all, rebuild(without))
				if slices.Contains(printed, key) {
					continue
				}
				visit(typed[key], func(changed any) any {
					copied := maps.Clone(typed)
					copied[key] = changed
					return rebuild(copied)
				})
			}
		case []any:
			all = append(all, rebuild(append(slices.Clone(typed), typed...)))
			for i := range typed {
				visit(typed[i], func(changed any) any {
					copied := slices.Clone(typed)
					copied[i] = changed
					return rebuild(copied)
				})
			}
		case string:
			all = append(all, rebuild(typed[:len(typed)/2]))
		}
	}
	visit(document, func(changed any) any { return changed })
	return all
}
