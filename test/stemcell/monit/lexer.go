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

// is tells whether the token is one of these words, in any case; a quoted string is never one.
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

// ignoredCharacters is what monit's grammar allows for readability, and ignores, between other characters.
const ignoredCharacters = " \t\r,;()"

type lexer struct {
	content string
	at      int
	line    int
	tokens  []token
}

// lex splits a control file into tokens.
func lex(content string) ([]token, error) {
	l := &lexer{content: content, line: 1}
	for l.at < len(content) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, nil
}

func (l *lexer) next() error {
	switch c := l.content[l.at]; {
	case c == '\n':
		l.line++
		l.at++
	case strings.IndexByte(ignoredCharacters, c) >= 0:
		l.at++
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

func (l *lexer) takeWhile(belongs func(byte) bool) string {
	start := l.at
	for l.at < len(l.content) && belongs(l.content[l.at]) {
		l.at++
	}
	return l.content[start:l.at]
}

func (l *lexer) add(text string, quoted bool) {
	l.tokens = append(l.tokens, token{text: text, quoted: quoted, line: l.line})
}

func (l *lexer) quoted(quote byte) error {
	return l.until(quote, fmt.Sprintf("the string that begins with %c", quote))
}

// braced takes what is in braces as one string: the lists of events and the format of mails.
func (l *lexer) braced() error {
	return l.until('}', "what begins with {")
}

func (l *lexer) until(end byte, what string) error {
	length := strings.IndexByte(l.content[l.at+1:], end)
	if length < 0 {
		return fmt.Errorf("line %d: %s does not end", l.line, what)
	}
	text := l.content[l.at+1 : l.at+1+length]
	l.add(text, true)
	l.line += strings.Count(text, "\n")
	l.at += length + 2
	return nil
}
