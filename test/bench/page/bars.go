package page

import "bosh-kubernetes-cpi/test/bench/figures"

// bars shows amounts below each other; of each a part may stand out.
type bars struct {
	Title  string
	Height float64
	Rows   []bar
}

type bar struct {
	Name, Value string
	Class       string
	Text, Y     float64
	Width, Part float64
}

// measure is an amount with its name.
type measure struct {
	name, class, text string
	value, part       float64
}

func newBars(title string, measures []measure) bars {
	const each = 38.0
	high := 0.0
	for _, m := range measures {
		high = max(high, m.value)
	}
	x := axis{0, max(high, 1e-9), false, 0, width - 2*margin}
	picture := bars{Title: title, Height: 8 + each*float64(len(measures))}
	for i, m := range measures {
		y := each * float64(i)
		picture.Rows = append(picture.Rows, bar{Name: m.name, Value: m.text, Class: m.class, Text: y + 13, Y: y + 19,
			Width: max(1, x.At(m.value)), Part: x.At(m.part)})
	}
	return picture
}

func objectBars(objects []figures.Object) bars {
	var measures []measure
	for _, object := range objects {
		text := amount(int64(object.Bytes))
		if object.Scripts > 0 {
			text += ", scripts " + amount(int64(object.Scripts))
		}
		measures = append(measures, measure{object.Name, "wall", text, float64(object.Bytes), float64(object.Scripts)})
	}
	return newBars("Bytes in etcd", measures)
}
