package monit

import (
	"fmt"
	"strings"
)

// token is a word, a quoted string, an operator or a brace of a control file.
type token struct {
	text   string
	quoted bool
	line   int
}

// is reports whether the token is one of these words, ignoring case. A quoted string is not a word.
func (t token) is(words ...string) bool {
	if t.quoted {
		return false
	}
	for _, word := range words {
		if strings.EqualFold(t.text, word) {
			return true
		}
	}
	return false
}

// ignoredCharacters are the characters that monit's grammar ignores between tokens.
const ignoredCharacters = " \t\r,;()"

type lexer struct {
	content  string
	position int
	line     int
	tokens   []token
}

// lex splits a control file into tokens.
func lex(content string) ([]token, error) {
	l := &lexer{content: content, line: 1}
	for l.position < len(content) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, nil
}

func (l *lexer) next() error {
	switch c := l.content[l.position]; {
	case c == '\n':
		l.line++
		l.position++
	case strings.IndexByte(ignoredCharacters, c) >= 0:
		l.position++
	case c == '#':
		l.takeWhile(func(c byte) bool { return c != '\n' })
	case c == '"' || c == '\'':
		return l.quoted(c)
	case c == '{':
		return l.braced()
	case strings.IndexByte("<>=!", c) >= 0:
		l.add(l.takeWhile(func(c byte) bool { return strings.IndexByte("<>=!", c) >= 0 }), false)
	default:
		l.add(l.takeWhile(func(c byte) bool { return strings.IndexByte(ignoredCharacters+"\n#\"'{}<>=!", c) < 0 }), false)
	}
	return nil
}

func (l *lexer) takeWhile(accept func(byte) bool) string {
	start := l.position
	for l.position < len(l.content) && accept(l.content[l.position]) {
		l.position++
	}
	return l.content[start:l.position]
}

func (l *lexer) add(text string, quoted bool) {
	l.tokens = append(l.tokens, token{text: text, quoted: quoted, line: l.line})
}

func (l *lexer) quoted(quote byte) error {
	return l.readUntil(quote, fmt.Sprintf("the string that starts with %c", quote))
}

// braced reads the content of braces as one string: a list of events, or the format of mails.
func (l *lexer) braced() error {
	return l.readUntil('}', "the text that starts with {")
}

// readUntil adds the string that ends before the character. name is the name of the string in errors.
func (l *lexer) readUntil(end byte, name string) error {
	length := strings.IndexByte(l.content[l.position+1:], end)
	if length < 0 {
		return fmt.Errorf("line %d: %s is not terminated", l.line, name)
	}
	text := l.content[l.position+1 : l.position+1+length]
	l.add(text, true)
	l.line += strings.Count(text, "\n")
	l.position += length + 2
	return nil
}
