#pragma once

// Ctrl-C as a number: the first asks for an orderly end, the second for leaving at once; the verbs
// look at it ten times a second while they wait. A third one ends the process wherever it is.

namespace spate::cli {

// From now on SIGINT and SIGTERM are counted instead of ending the process.
void count_interrupts();
int interrupts();

}  // namespace spate::cli
