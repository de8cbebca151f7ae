// totals.go - a handler for `exec:`: keeps the total of all payments in a file.
//
// Safe to run twice: how far it has come stands in the same file as the total, and both change in one
// step. Events of a target come in order, so an event at or below that position has been counted.
// (For one target per file: `to` must be constant, or the file's name must come from the target.)
//
//	go build -o totals totals.go
//	TOTALS=totals.json weir work --on Paid --to totals --exec ./totals --from start
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

type delivery struct {
	Event struct {
		ID   int64 `json:"id"`
		Data struct {
			Amount int64 `json:"amount"`
		} `json:"data"`
	} `json:"event"`
}

type totals struct {
	Position int64 `json:"position"` // of the last event that is in Amount
	Amount   int64 `json:"amount"`
}

type answer struct {
	OK    bool   `json:"ok,omitempty"`
	Retry string `json:"retry,omitempty"`
}

func read(path string) (totals, error) {
	var t totals
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	return t, err
}

// write replaces the file in one step, and only when what it says is on disk.
func write(path string, t totals) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	draft, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = draft.Write(text)
	if err == nil {
		err = draft.Sync()
	}
	if closed := draft.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

func handle(line []byte, path string) error {
	var d delivery
	if err := json.Unmarshal(line, &d); err != nil {
		return err
	}
	t, err := read(path)
	if err != nil || d.Event.ID <= t.Position {
		return err // or it has been counted
	}
	return write(path, totals{Position: d.Event.ID, Amount: t.Amount + d.Event.Data.Amount})
}

func main() {
	path := os.Getenv("TOTALS")
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // the worker has ended
		}
		a := answer{OK: true}
		if err := handle(line, path); err != nil {
			a = answer{Retry: err.Error()}
		}
		text, _ := json.Marshal(a)
		fmt.Println(string(text))
	}
}
