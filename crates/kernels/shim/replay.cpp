// Owns the run of one recorded dispatch in a process of its own: AddressSanitizer ends the process at the first fault,
// so it cannot live inside the tests. Reads a job from stdin, writes the buffers to stdout.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

struct Entry { const char* name; void (*run)(emu::Thread&); };
struct Setter { const char* file; uint32_t index; void (*set)(uint32_t); };
extern "C" const Entry mettle_replay_entries[];
extern "C" const Setter mettle_replay_setters[];

namespace emu { struct Worker; }
extern "C" emu::Worker* mettle_emu_worker_new(void (*)(emu::Thread&), void* const*, size_t, const uint32_t*, const uint32_t*, uint32_t);
extern "C" int mettle_emu_worker_run(emu::Worker*, const uint32_t*, char*, size_t);
extern "C" void mettle_emu_worker_free(emu::Worker*);

// The process ends when its work is done, and its memory with it.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

static void take(void* to, size_t bytes) {
  if (fread(to, 1, bytes, stdin) != bytes) { fprintf(stderr, "the job ends early\n"); exit(2); }
}
static uint32_t take_number() { uint32_t value; take(&value, sizeof value); return value; }
static char* take_text() {
  uint32_t bytes = take_number();
  char* text = (char*)calloc(bytes + 1, 1);
  take(text, bytes);
  return text;
}

int main() {
  char* name = take_text();
  char* file = take_text();
  const Entry* entry = mettle_replay_entries;
  while (entry->name && strcmp(entry->name, name) != 0) entry++;
  if (!entry->name) { fprintf(stderr, "there is no kernel %s\n", name); return 2; }
  uint32_t grid[3], threads[3];
  take(grid, sizeof grid);
  take(threads, sizeof threads);
  const uint32_t memory = take_number(), seed = take_number();
  for (uint32_t left = take_number(); left; left--) {
    const uint32_t index = take_number(), value = take_number();
    for (const Setter* setter = mettle_replay_setters; setter->file; setter++)
      if (setter->index == index && strcmp(setter->file, file) == 0) setter->set(value);
  }
  const uint32_t count = take_number();
  void** buffers = (void**)calloc(count, sizeof(void*));
  uint32_t* sizes = (uint32_t*)calloc(count, sizeof(uint32_t));
  for (uint32_t i = 0; i < count; i++) {
    sizes[i] = take_number();
    buffers[i] = malloc(sizes[i]);
    take(buffers[i], sizes[i]);
  }
  emu::Worker* worker = mettle_emu_worker_new(entry->run, buffers, memory, grid, threads, seed);
  char message[512];
  for (uint32_t z = 0; z < grid[2]; z++)
    for (uint32_t y = 0; y < grid[1]; y++)
      for (uint32_t x = 0; x < grid[0]; x++) {
        const uint32_t position[3] = {x, y, z};
        if (mettle_emu_worker_run(worker, position, message, sizeof message)) { fprintf(stderr, "%s\n", message); return 1; }
      }
  mettle_emu_worker_free(worker);
  for (uint32_t i = 0; i < count; i++) fwrite(buffers[i], 1, sizes[i], stdout);
  return 0;
}
