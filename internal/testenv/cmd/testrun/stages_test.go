package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/fstest"
)

// Every fuzz target of the tree is found, and nothing that only looks like one.
func TestFindFuzzTargets(t *testing.T) {
	t.Parallel()
	got, err := findFuzzTargets(fstest.MapFS{
		"a/a_test.go":          {Data: []byte("package a\n\nfunc FuzzOne(f *testing.F) {\n}\n\nfunc FuzzTwo(fz *testing.F) {}\n")},
		"a/a.go":               {Data: []byte("package a\n\nfunc FuzzNoTest(f *testing.F) {}\n")},
		"a/b/b_test.go":        {Data: []byte("package b\n\n// func FuzzComment(f *testing.F)\nfunc TestX(t *testing.T) {}\n")},
		".cache/c_test.go":     {Data: []byte("package c\n\nfunc FuzzCache(f *testing.F) {}\n")},
		"a/testdata/d_test.go": {Data: []byte("package d\n\nfunc FuzzData(f *testing.F) {}\n")},
	})
	want := []fuzzTarget{{"a", "FuzzOne"}, {"a", "FuzzTwo"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// The stages stop at the first failure, and the run fails with it.
func TestRunStagesStopsAtFailure(t *testing.T) {
	t.Parallel()
	var ran []string
	failure := errors.New("broken")
	step := func(name string, err error) stage {
		return stage{name, func(context.Context) error { ran = append(ran, name); return err }}
	}
	err := runStages(t.Context(), []stage{step("a", nil), step("b", failure), step("c", nil)})
	if !errors.Is(err, failure) || !slices.Equal(ran, []string{"a", "b"}) {
		t.Errorf("ran %v, error %v", ran, err)
	}
}

// An unknown stage is an error, not an empty and therefore green run.
func TestChooseStages(t *testing.T) {
	t.Parallel()
	if _, err := chooseStages("unit,nosuch"); err == nil {
		t.Error("an unknown stage was accepted")
	}
	got, err := chooseStages("race,vet")
	if err != nil || len(got) != 2 || got[0].name != "vet" || got[1].name != "race" {
		t.Errorf("got %v, %v", got, err)
	}
}
