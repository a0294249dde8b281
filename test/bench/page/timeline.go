package page

import "bosh-kubernetes-cpi/test/bench/figures"

// timeline shows when things were seen, each as a bar from the one before.
type timeline struct {
	Height float64
	Floor  float64
	Ticks  []tick
	Rows   []span
}

type span struct {
	What, Took       string
	Text, Y          float64
	From, To, Length float64
}

func newTimeline(moments []figures.Moment) timeline {
	const each = 34.0
	picture := timeline{Floor: 6 + each*float64(len(moments))}
	picture.Height = picture.Floor + 22
	high := 0.0
	for _, m := range moments {
		high = max(high, m.At)
	}
	x := linear(high, margin, width-margin)
	picture.Ticks = x.ticks()
	before := 0.0
	for i, m := range moments {
		y := each * float64(i)
		s := span{What: m.What, Took: "+" + number(m.At-before) + " ms", Text: y + 13, Y: y + 18, From: x.At(before), To: x.At(m.At)}
		s.Length = max(2, s.To-s.From)
		picture.Rows = append(picture.Rows, s)
		before = m.At
	}
	return picture
}
