// SPDX-License-Identifier: Apache-2.0
// Runs a model: takes rows (sequence, position, token), returns logits. One pass runs all rows through all layers,
// routed experts streaming through a cache of fixed size. The logits of a row depend on its own history only, to the
// bit: never on the other rows, the chunk, the threads, the ISA, the cache, the policy or the I/O path (design.md
// section 5).
//
// Memory: everything is allocated by the constructor, in the amounts that memory_plan() told; a pass allocates nothing.
// Errors of a pass (non-finite router input, failed read, cancel) throw Error; every sequence then is as it was before
// the pass and the engine stays usable. Threads: owned by one thread. Only the cancel flag may be set from another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outrider/base/error.h"
#include "outrider/base/isa.h"
#include "outrider/engine/candidate.h"
#include "outrider/engine/pass_observer.h"
#include "outrider/kernels/attention/attention.h"
#include "outrider/model/model.h"
#include "outrider/residency/expert_store.h"
#include "outrider/residency/predictor.h"

namespace outrider::engine {

inline constexpr uint32_t kMaxLookAhead = 16;
inline constexpr uint32_t kLookAheadAuto = UINT32_MAX;
inline constexpr uint64_t kTokenTableBytes = 8U << 20;  // most of the token predictor, in memory and when it is kept
inline constexpr uint32_t kMaxAheadDistance = 2;

// Whether the next token is guessed before the head runs, where experts stream with look-ahead; kAuto: while that pays.
enum class TokenAheadMode : uint8_t { kOff, kAuto, kAlways };

struct EngineOptions {
  uint32_t context = 0;      // positions per sequence; 0 = min(the model's context_length, 4096)
  uint32_t n_sequences = 1;  // sequences 0..n_sequences-1 exist from the start, empty
  uint32_t n_threads = 1;
  Isa isa = Isa::kScalar;    // kernels use at most this (best_isa() for speed)
  uint32_t chunk = 512;      // most rows of one pass; 0 = the default, or what a plan chooses (whatif/plan.h)
  uint32_t logit_rows = 16;  // most rows whose logits are held at once
  kernels::KvType kv_type = kernels::KvType::kF16;
  uint32_t slots_per_layer = 0;  // expert cache: slots per MoE layer, minimum_slots()..n_experts; 0 = all experts
  residency::SlotPool slot_pool = residency::SlotPool::kLayer;
  std::string evict = "guarded";  // docs/policies.md has the numbers
  double lfu_half_life_tokens = 256;
  residency::IoMode io = residency::IoMode::kAuto;
  residency::DirectMode direct = residency::DirectMode::kAuto;
  uint32_t queue_depth = 16;  // of each copy of the files
  // Copies of the model's files (model/mirror.h): experts are read there, too.
  std::vector<std::vector<std::string>> mirrors = {};
  // Rows of the token embedding are read when tokens ask for them, instead of being resident. Without effect where the
  // head shares the tensor. Never changes a bit.
  bool embedding_on_drive = false;
  // Experts guessed ahead for each row: 0 = off, 1..kMaxLookAhead, or kLookAheadAuto: what pays, decided and decided
  // again from measurements. Never changes a bit.
  uint32_t lookahead = 0;
  uint32_t lookahead_distance = 1;                    // MoE layers ahead at most, 1..kMaxAheadDistance
  TokenAheadMode token_ahead = TokenAheadMode::kOff;  // for who gives pass() a chooser. Never changes a bit
  // For tests and measurements, which outlive the engine: guesses in place of all predictors, and what makes the drive
  // of the experts slow or bad.
  residency::Predictor* guesses = nullptr;
  io::FaultPlan* faults = nullptr;
  const std::atomic<bool>* cancel = nullptr;  // looked at between layers: true -> Error(kCancelled)
};

// One line of the memory plan; the engine allocates exactly this.
struct PlanLine {
  std::string name;  // "dense weights", "KV cache", "work buffers", "embedding rows", "expert cache", "look-ahead"
  uint64_t bytes = 0;
};

// Options with every default filled in and every limit applied (context, slots). Throws Error(kBadArgument) naming the
// option, its value and the limit: a context of 0 or beyond uint32, fewer slots than minimum_slots(), ...
EngineOptions resolve(const model::Model& model, EngineOptions options);

// Computed from the directory, without reading a weight. In this order: dense weights, KV cache, work buffers, then
// those of the other lines that there are.
std::vector<PlanLine> memory_plan(const model::Model& model, const EngineOptions& options);

// The fewest slots per layer that can run one row: the experts per token. 0 in a dense model.
uint32_t minimum_slots(const model::Model& model) noexcept;

// Where the experts of each MoE layer lie, for the store, plans and simulators.
std::vector<residency::LayerSource> expert_sources(const model::Model& model);

struct PassRow {
  uint32_t sequence = 0;
  uint32_t position = 0;  // rows of one sequence continue it: n_tokens(sequence), then rising by one
  int32_t token = 0;
  bool wants_logits = false;
};

// What a router chose for one row; `row` counts the rows of the pass. ids in descending selection value.
struct Routing {
  uint32_t moe_layer = 0, row = 0;
  std::span<const uint32_t> ids;
  std::span<const float> weights;
};
using RoutingObserver = std::function<void(const Routing&)>;

// Where the time of all passes went, in ns; the fields sum to the wall time inside passes (a pass that failed counts up
// to its last finished phase). `stall` is time in which compute waited for expert bytes; it is in no other field.
struct PhaseTimes {
  uint64_t attention = 0, router = 0, experts = 0, dense = 0, head = 0, stall = 0, other = 0;
  uint64_t total() const noexcept { return attention + router + experts + dense + head + stall + other; }
};

struct EngineCounters {
  uint64_t passes = 0, rows = 0;     // finished passes and their rows
  residency::StoreCounters experts;  // all zero in a dense model
};

// Guesses against what was chosen, for guesses of `width` experts a row, made `distance` MoE layers ahead.
struct LookAheadScore {
  uint32_t width = 0;
  uint32_t distance = 1;
  double precision = 0;  // share of the guessed experts that were chosen
  double coverage = 0;   // share of the chosen experts that were guessed
  double in_time = 0;    // of the guessed and chosen, the share that was resident when demanded
};

// What a pass throws when the numbers of one row went wrong: kind kNumeric, naming the layer. The other rows of the
// pass are not to blame and can be run again without it.
class RowError : public Error {
 public:
  RowError(uint32_t row, const std::string& message) : Error(ErrorKind::kNumeric, message), row_(row) {}
  uint32_t row() const noexcept { return row_; }  // of the pass

 private:
  uint32_t row_;
};

// Guesses of the next token that had an outcome.
struct NextTokenScore {
  uint64_t guessed = 0, right = 0;
  uint64_t searched_early = 0;  // while the last layer waited for its experts
};

// Called while dense weights load: bytes read so far, of all.
using LoadProgress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

class Engine {
 public:
  // `model` must outlive the engine. Reads the dense weights. Throws Error for what resolve() refuses, for memory that
  // cannot be had and for failed reads.
  Engine(const model::Model& model, const EngineOptions& options, const LoadProgress& progress = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const model::Model& model() const noexcept;
  const EngineOptions& options() const noexcept;              // resolved
  const std::vector<std::string>& warnings() const noexcept;  // of the store's I/O: fallbacks, a line each; grows

  // Tokens of a sequence that are in its KV cache.
  uint32_t n_tokens(uint32_t sequence) const;
  // Forgets all tokens from position n on; n <= n_tokens(sequence).
  void keep(uint32_t sequence, uint32_t n);

  // Runs 1..chunk rows, of which at most logit_rows want logits. Returns the logits of those, in row order:
  // (n_wanted, n_vocab), valid until the next pass. No rows: does nothing, returns nothing.
  // Throws Error(kBadArgument) before anything runs: unknown sequence or token, position out of order, context full.
  // `next`: the next pass will probably be one row behind this one's only row, with the token that `next` chooses. It
  // is asked where experts stream with look-ahead and that pays, before the head runs, so that what the token will
  // demand is read meanwhile (token_ahead.h). Never changes a bit.
  std::span<const float> pass(std::span<const PassRow> rows, NextTokenChooser* next = nullptr);

  // Appends tokens to a sequence in passes of `chunk` rows and returns the last one's logits (n_vocab), valid until the
  // next pass. With `on_logits`, that is called for every position in rising order instead, and the return is the last
  // one's too. On an error the sequence has the tokens of the passes that were finished.
  using OnLogits = std::function<void(uint32_t index, std::span<const float> logits)>;
  std::span<const float> prefill(uint32_t sequence, std::span<const int32_t> tokens, const OnLogits& on_logits = {});

  // Also told of the rows of guessed passes, which may not come.
  void set_routing_observer(RoutingObserver observer);
  // From the next pass on, and for as long as the engine lives: `observer` must outlive its last pass. In the order
  // added.
  void add_pass_observer(PassObserver& observer);

  EngineCounters counters() const noexcept;
  PhaseTimes phase_times() const noexcept;
  io::ReadLatency read_latency() const noexcept;  // of expert reads
  std::vector<io::CopyReads> copy_reads() const;  // of expert reads: the model's files, then the mirrors

  // Of distances 1, 2, ..., and of widths 1, 2, ... in each, of the guesses that the arbiter took; empty when
  // look-ahead is off.
  std::vector<LookAheadScore> lookahead_scores() const;
  uint32_t lookahead_width() const noexcept;  // 0: off
  NextTokenScore next_token_score() const noexcept;
  std::string lookahead_report() const;  // one line; empty when off
  // What the token predictor has learned, for a later run of the same model: at most kTokenTableBytes, empty when
  // look-ahead is off. restore: false, and nothing changed, when that is no such table or look-ahead is off.
  std::vector<std::byte> token_table() const;
  bool restore_token_table(std::span<const std::byte> table);
  // Reads these experts into free slots while the drive has nothing better to do.
  void refill(std::vector<residency::ExpertKey> experts);
  // Decayed counts of demands, by MoE layer and expert; empty in a dense model.
  std::vector<std::vector<float>> expert_heat() const;
  // "exact" while every kernel in use keeps the law.
  std::string kernel_class() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outrider::engine
