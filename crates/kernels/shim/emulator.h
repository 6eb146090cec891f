// Owns the emulated machine as the kernels and the runtime both see it: threads, simdgroups, threadgroups.
#pragma once
#pragma clang system_header
#include <stddef.h>
#include <stdint.h>

namespace emu {
struct Vec3 { uint32_t x, y, z; };
struct Site { const char* file; int line; };

struct Simdgroup;
struct Threadgroup;
enum class State : uint8_t { Ready, AtSimd, AtBarrier, Done };

// An asynchronous copy of 16 bytes, of zeros where `from` is null; `commits` counts those before it.
struct Copy { void* to; const void* from; uint32_t commits; };
constexpr uint32_t kMostCopies = 256;

// One GPU thread: a fiber with its own stack.
struct Thread {
  void* stack_pointer;
  Simdgroup* simdgroup;
  Threadgroup* group;
  uint32_t lane, index;
  Vec3 position;
  State state;
  Copy* copies;
  uint32_t copy_count, commits;
};

// Lanes meet in collectives; the last to arrive computes for all.
struct Simdgroup {
  uint32_t size, live, arrived, mask;
  void* slot[32];
  void (*collective)(Simdgroup&);
  Site site;
  Thread* lanes[32];
};

struct Threadgroup {
  void (*entry)(Thread&);
  void* const* buffers;
  void* memory;
  void* snapshot;
  size_t memory_bytes;
  Vec3 position, grid, threads;
  uint32_t size, live, arrived;
  Thread* all;
  Site site;
  int flags;
  void* scheduler;
  bool lockstep, failed;
  char* message;
  size_t message_bytes;
};

extern thread_local Thread* current __attribute__((tls_model("initial-exec")));

// Ends the dispatch with a message; the fibers are left where they are.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
void meet(void* slot, void (*collective)(Simdgroup&), Site site);
void barrier(int flags, Site site);
// A copy under way may land at any time: its target is poison until the wait, which brings the bytes.
void copy_begin(void* to, const void* from, Site site);
void copies_commit();
void copies_wait(uint32_t pending);
}  // namespace emu
