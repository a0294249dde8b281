package cpi

import "strings"

// secretWords, in a key, mark its value as secret.
var secretWords = []string{"password", "secret", "token", "private", "credential", "kubeconfig", "mbus", "cert", "key", "env"}

// redacted answers the document with secret values replaced, recursively.
func redacted(document any) any {
	switch value := document.(type) {
	case map[string]any:
		clean := make(map[string]any, len(value))
		for key, inner := range value {
			if secret(key) {
				clean[key] = "<redacted>"
			} else {
				clean[key] = redacted(inner)
			}
		}
		return clean
	case []any:
		clean := make([]any, len(value))
		for i, inner := range value {
			clean[i] = redacted(inner)
		}
		return clean
	}
	return document
}

func secret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range secretWords {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}
