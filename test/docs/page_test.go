package docs

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// page is a parsed Markdown file.
type page struct {
	path     string
	prose    string // content without code blocks
	blocks   []block
	headings []string
	open     bool // whether the last code block is not closed
}

// block is a fenced or indented code block.
type block struct {
	line     int    // number of the block's first line
	language string // "" if the block has none, or is indented
	content  string
}

var (
	fencePattern    = regexp.MustCompile("^ *(```+|~~~+) *([^ `]*)")
	headingPattern  = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	indentPattern   = regexp.MustCompile(`^( {4}|\t)`)
	listItemPattern = regexp.MustCompile(`^ *([-*]|\d+\.) `)
	spanPattern     = regexp.MustCompile("(?s)(`+)([^`].*?)(`+)")
	linkPattern     = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]*)(?: "[^"]*")?\)`)
)

// parsePage parses a Markdown file. The path is relative to the root of the repository.
func parsePage(path string) page {
	p := page{path: path}
	var prose strings.Builder
	var current *block
	closingFence, blank, list := "", true, false
	for i, line := range strings.Split(readFile(path), "\n") {
		opening := fencePattern.FindStringSubmatch(line)
		switch {
		case closingFence != "": // in a fenced block
			if strings.TrimSpace(line) == closingFence {
				closingFence, current = "", nil
				break
			}
			current.content += line + "\n"
		case opening != nil:
			closingFence = opening[1]
			p.blocks = append(p.blocks, block{line: i + 1, language: opening[2]})
			current = &p.blocks[len(p.blocks)-1]
		case indentPattern.MatchString(line) && !list && (blank || current != nil):
			if current == nil {
				p.blocks = append(p.blocks, block{line: i + 1})
				current = &p.blocks[len(p.blocks)-1]
			}
			current.content += strings.TrimSpace(line) + "\n"
		default:
			if strings.TrimSpace(line) != "" {
				current = nil
				list = listItemPattern.MatchString(line) || list && strings.HasPrefix(line, " ")
			}
			if title := headingPattern.FindStringSubmatch(line); title != nil {
				p.headings = append(p.headings, title[1])
			}
			prose.WriteString(line + "\n")
		}
		blank = strings.TrimSpace(line) == ""
	}
	p.prose, p.open = prose.String(), closingFence != ""
	return p
}

// position returns the position of a block, as "PATH:LINE".
func (p page) position(b block) string { return fmt.Sprintf("%s:%d", p.path, b.line) }

// spans returns the inline code in the prose, each as one line.
func (p page) spans() []string {
	var spans []string
	for _, match := range spanPattern.FindAllStringSubmatch(p.prose, -1) {
		if match[1] == match[3] {
			spans = append(spans, strings.Join(strings.Fields(match[2]), " "))
		}
	}
	return spans
}

// links returns the targets of the links and images in the prose.
func (p page) links() []string {
	var targets []string
	for _, match := range linkPattern.FindAllStringSubmatch(spanPattern.ReplaceAllString(p.prose, "code"), -1) {
		targets = append(targets, match[2])
	}
	return targets
}

// anchors returns the anchors that GitHub generates for the page's headings.
func (p page) anchors() map[string]bool {
	anchors, counts := map[string]bool{}, map[string]int{}
	for _, title := range p.headings {
		anchor := anchorOf(title)
		counts[anchor]++
		if counts[anchor] > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, counts[anchor]-1)
		}
		anchors[anchor] = true
	}
	return anchors
}

// anchorOf returns the anchor that GitHub generates for a heading.
func anchorOf(title string) string {
	title = linkPattern.ReplaceAllString(title, "$1")
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

// commands returns the code that a reader may run in a shell: inline code, and the lines of shell blocks.
func (p page) commands() []string {
	lines := p.spans()
	for _, b := range p.blocks {
		switch b.language {
		case "", "sh", "bash", "console":
			lines = append(lines, strings.Split(b.content, "\n")...)
		}
	}
	return lines
}
