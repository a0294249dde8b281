package docs

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// page is a document in Markdown, taken apart as far as these tests need it.
type page struct {
	path     string
	prose    string // without the blocks
	blocks   []block
	headings []string
	open     bool // the last block has no end
}

// block is code, fenced or indented.
type block struct {
	line     int    // of its first line
	language string // "" when it is not said, or indented
	text     string
}

var (
	fence    = regexp.MustCompile("^ *(```+|~~~+) *([^ `]*)")
	heading  = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	indented = regexp.MustCompile(`^( {4}|\t)`)
	listItem = regexp.MustCompile(`^ *([-*]|\d+\.) `)
	span     = regexp.MustCompile("(?s)(`+)([^`].*?)(`+)")
	link     = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]*)(?: "[^"]*")?\)`)
)

func parsePage(path string) page {
	p := page{path: path}
	var prose strings.Builder
	var current *block
	end, blank, list := "", true, false
	for i, line := range strings.Split(readFile(path), "\n") {
		begins := fence.FindStringSubmatch(line)
		switch {
		case end != "": // in a fence
			if strings.TrimSpace(line) == end {
				end, current = "", nil
				break
			}
			current.text += line + "\n"
		case begins != nil:
			end = begins[1]
			p.blocks = append(p.blocks, block{line: i + 1, language: begins[2]})
			current = &p.blocks[len(p.blocks)-1]
		case indented.MatchString(line) && !list && (blank || current != nil):
			if current == nil {
				p.blocks = append(p.blocks, block{line: i + 1})
				current = &p.blocks[len(p.blocks)-1]
			}
			current.text += strings.TrimSpace(line) + "\n"
		default:
			if strings.TrimSpace(line) != "" {
				current = nil
				list = listItem.MatchString(line) || list && strings.HasPrefix(line, " ")
			}
			if title := heading.FindStringSubmatch(line); title != nil {
				p.headings = append(p.headings, title[1])
			}
			prose.WriteString(line + "\n")
		}
		blank = strings.TrimSpace(line) == ""
	}
	p.prose, p.open = prose.String(), end != ""
	return p
}

// at says where the block is.
func (p page) at(b block) string { return fmt.Sprintf("%s:%d", p.path, b.line) }

// spans are the pieces of code in the prose, each in one line.
func (p page) spans() []string {
	var found []string
	for _, match := range span.FindAllStringSubmatch(p.prose, -1) {
		if match[1] == match[3] {
			found = append(found, strings.Join(strings.Fields(match[2]), " "))
		}
	}
	return found
}

// links are the targets of the prose's links, pictures included.
func (p page) links() []string {
	var found []string
	for _, match := range link.FindAllStringSubmatch(span.ReplaceAllString(p.prose, "code"), -1) {
		found = append(found, match[2])
	}
	return found
}

// anchors are what links to the page's headings can name, as GitHub makes it of them.
func (p page) anchors() map[string]bool {
	known, times := map[string]bool{}, map[string]int{}
	for _, title := range p.headings {
		anchor := anchorOf(title)
		times[anchor]++
		if times[anchor] > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, times[anchor]-1)
		}
		known[anchor] = true
	}
	return known
}

func anchorOf(title string) string {
	title = link.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// code are all lines of code that someone may type: spans, and the lines of blocks for a shell.
func (p page) code() []string {
	lines := p.spans()
	for _, b := range p.blocks {
		switch b.language {
		case "", "sh", "bash", "console":
			lines = append(lines, strings.Split(b.text, "\n")...)
		}
	}
	return lines
}
