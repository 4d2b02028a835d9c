#pragma once
// Scratch that kernels need besides their arguments, by kind of device. An op takes it before it calls its kernel, so that
// it is predicted exactly. The ops themselves have the CPU's tiles and column sums; this file has the GPUs' scratch.

#include <cstdint>
#include <span>
#include <string_view>

#include "model/device/device.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

/// Scratch of the category workspace; undefined where there are no bytes.
[[nodiscard]] Tensor take_scratch(Device& device, std::int64_t bytes, std::string_view name);

/// Workspace of a matrix product: cuBLAS's own default, 32 MiB from Hopper on, 4 MiB before (cuBLAS documentation,
/// "cublasSetWorkspace"). 0 on the CPU, whose tiles are tensors of their own.
[[nodiscard]] std::int64_t matmul_workspace_bytes(const KernelTraits& traits);

/// Number of groups of rows whose columns are added up in parallel: the column sums have one row for each. 1 on the CPU.
[[nodiscard]] std::int64_t column_sum_parts(const KernelTraits& traits, std::int64_t rows);

/// Parts of column sums per group: a GPU adds up groups in parallel, and then their sums.
inline constexpr std::int64_t kPartsOfGroup = 16;
/// Number of kernels that add column sums of `parts` to a gradient.
[[nodiscard]] constexpr std::int64_t column_sum_launches(std::int64_t parts) {
    return parts > kPartsOfGroup ? 2 : 1;
}

/// Arrays that a kernel of a GPU takes at a time: with up to 72 bytes for each there is room in the 4 KiB of parameters that every CUDA
/// has.
inline constexpr int kArraysOfALaunch = 48;
[[nodiscard]] constexpr std::int64_t launches_for_arrays(std::int64_t arrays) {
    return (arrays + kArraysOfALaunch - 1) / kArraysOfALaunch;
}

/// Number of pieces of a flat array that are reduced in parallel, in an order that depends on the number of elements alone.
[[nodiscard]] std::int64_t reduction_parts(std::int64_t elements);
/// Bytes of partial sums of arrays of these sizes, fp64: at most 1/1024 byte for each element. 0 on the CPU, as all below.
[[nodiscard]] std::int64_t sums_of_squares_scratch_bytes(const KernelTraits& traits, std::span<const std::int64_t> elements);
/// Number of buckets: rows are grouped by their id modulo this number.
inline constexpr std::int64_t kEmbeddingBuckets = 256;
/// Rows by bucket; for each row the next one with the same id, and whether it is the first with its id.
[[nodiscard]] std::int64_t embedding_backward_scratch_bytes(const KernelTraits& traits, std::int64_t rows);
/// A loss for each row.
[[nodiscard]] std::int64_t auxiliary_loss_scratch_bytes(const KernelTraits& traits, std::int64_t rows);
/// A first place for each expert.
[[nodiscard]] std::int64_t expert_scratch_bytes(const KernelTraits& traits, std::int64_t experts);

/// Counts and first places by expert, and the entries in the order of their experts.
[[nodiscard]] std::int64_t capacity_scratch_bytes(const KernelTraits& traits, std::int64_t entries, std::int64_t experts);

/// Byte offsets into attention's workspace, each a multiple of 256; -1 where a part is absent.
struct AttentionWorkspace {
    std::int64_t block = 0;         ///< unfused: query places worked on at once
    std::int64_t log_sum_exp = -1;  ///< fused: (sequence, head, place of the part's queries) fp32, cuDNN's order
    std::int64_t delta = -1;        ///< fused backward: the same shape, row sums of output times its gradient
    std::int64_t query_sums = -1;   ///< fused backward: the query gradient in fp32
    std::int64_t library = -1;      ///< cuDNN's or cuBLASLt's own
    std::int64_t library_bytes = 0;
    std::int64_t scores = -1;      ///< unfused: (sequence · head, block, key places) in the statistics' type
    std::int64_t d_scores = -1;    ///< unfused backward: the same
    std::int64_t weights = -1;     ///< unfused bf16: the probabilities rounded, as factors of a product
    std::int64_t d_weights = -1;   ///< unfused bf16 backward
    std::int64_t key_sums = -1;    ///< unfused bf16 backward: the key gradient in fp32
    std::int64_t value_sums = -1;  ///< unfused bf16 backward
    std::int64_t total = 0;
};
/// The fused sizes were read from plans of cuDNN 9.19 built for sm_80, 90, 100 and 103. The backward wants, with grouped queries, the
/// key and value gradients of every query head in bf16, and before Hopper another fp32 query gradient, of a multiple of 8 places;
/// Hopper wants 256 bytes more in each pass, the others 128 in a backward that wants any.
/// They are those of the part that is fused (fused_part(), which must have one).
/// The unfused ones bound the scores of a block to 256 MiB (or one query place).
[[nodiscard]] AttentionWorkspace attention_workspace(const KernelTraits& traits, Dtype dtype, const AttentionSizes& sizes, bool backward,
                                                     bool fused);

/// Byte offsets into the workspace of a scan by chunks (Mamba-2) on a GPU, each a multiple of 256; -1 where a part is absent. Its parts
/// hold what `block` chunks of all sequences take between products: of a chunk and sequence a "matrix" below, of `length` places. With H
/// the states that a chunk begins with and dH the gradients of those that it ends with: within = weights · values, of_states = C Hᵀ, inner
/// = weightsᵀ · dy, to_states = B dHᵀ, along = dy · valuesᵀ, and pairs = along, weighed by decays and added over a group's heads. left:
/// values decayed to the chunk's end; reached: dy decayed from its begin.
struct ScanWorkspace {
    std::int64_t block = 0;                   ///< whole chunks at once, as many as 256 MiB take, or one
    std::int64_t length = 0;                  ///< places of a whole chunk, or of all where there are fewer
    std::int64_t blocks = 0;                  ///< one more for a last chunk that is shorter
    std::int64_t writes = -1, reads = -1;     ///< (matrix, group, length, state), storage type: B, C
    std::int64_t values = -1, slopes = -1;    ///< (matrix, head, length, head_dim), storage type: x times steps; backward: dy
    std::int64_t left = -1, reached = -1;     ///< (matrix, group, length, heads of a group, head_dim), storage type; backward: the latter
    std::int64_t weights = -1;                ///< (matrix, head, length, length), storage type
    std::int64_t pairs = -1;                  ///< backward: (matrix, group, length, length), storage type
    std::int64_t states = -1, d_states = -1;  ///< states rounded to a narrower storage type; backward: their gradients
    std::int64_t of_states = -1, to_states = -1;   ///< (matrix, group, length, heads of a group, head_dim), statistics' type; backward
    std::int64_t along = -1;                       ///< backward: (matrix, head, length, length), statistics' type
    std::int64_t within = -1, inner = -1;          ///< (matrix, head, length, head_dim), statistics' type; backward: the latter
    std::int64_t d_writes = -1, d_reads = -1;      ///< backward: (matrix, group, length, state), statistics' type
    std::int64_t library = -1, library_bytes = 0;  ///< cuBLASLt's own
    std::int64_t total = 0;
};
[[nodiscard]] ScanWorkspace scan_workspace(const KernelTraits& traits, Dtype dtype, const StateSpaceSizes& sizes, bool backward);
/// Name of the tensor that holds it.
inline constexpr std::string_view kScanWorkspace = "scan workspace";

/// Most places of a delta rule's chunk on a GPU: a triangular matrix of this number of rows fits the shared memory of a team.
inline constexpr int kMostRulePlaces = 64;
/// Byte offsets into the workspace of a delta rule by chunks on a GPU, likewise; formulas are in runtime/cuda/ops/delta_rule.hpp. A
/// "head" is a value head, a "map" matrix one of (length, key_dim), a "line" matrix one of (length, value_dim), a "pair" matrix one of
/// (length, length); "wide" is the statistics' type, all else the storage type.
struct RuleWorkspace {
    std::int64_t block = 0;   ///< whole chunks at once, as many as 256 MiB take, or one
    std::int64_t length = 0;  ///< places of a whole chunk: those of the sizes, kMostRulePlaces at the most, or all where there are fewer
    std::int64_t whole = 0;   ///< whole chunks
    std::int64_t rest = 0;    ///< places of a last chunk that is shorter, or 0
    std::int64_t blocks = 0;  ///< one more for that

    std::int64_t strengths = -1;               ///< (matrix, head, length), wide
    std::int64_t decays = -1;                  ///< (matrix, head, length, decays of a head), wide: logarithms summed from the chunk's begin
    std::int64_t units = -1;                   ///< (matrix, head, 2 maps): unit keys; unit queries over the root of key_dim
    std::int64_t reads = -1;                   ///< (matrix, head, 2 maps): such queries decayed from the begin; what new values take off
    std::int64_t left = -1, found = -1;        ///< (matrix, head, map): unit keys decayed to the end; decayed from the begin, by strengths
    std::int64_t values = -1;                  ///< (matrix, head, line): values by strengths
    std::int64_t scores = -1;                  ///< (matrix, key head, 2 pairs), wide: keys and queries with keys; by channels of each head
    std::int64_t inverses = -1, weights = -1;  ///< (matrix, head, pair)
    std::int64_t remainders = -1;              ///< (matrix, head, pair): what rounding left of inverses; with strengths above 1 alone
    std::int64_t states = -1;                  ///< (matrix, head, key_dim, value_dim): in front of the chunks
    std::int64_t written = -1;                 ///< (matrix, head, line): new values
    std::int64_t outputs = -1;                 ///< forward: (matrix, head, line), wide
    std::int64_t gradients = -1;               ///< backward: (matrix, head, 3 lines): of values by strengths, of outputs, of new values
    std::int64_t d_states = -1;                ///< backward: as states, the gradients after the chunks
    std::int64_t along = -1;                   ///< backward: (matrix, head, 2 pairs), wide: the first two gradients with new values
    std::int64_t pairs = -1;                   ///< backward: (matrix, head, 2 pairs): gradients of the scores
    std::int64_t from_states = -1, from_pairs = -1;  ///< backward: (matrix, head, 2 maps), wide: gradients of what keys and queries read
    std::int64_t to_states = -1, to_pairs = -1;      ///< backward: (matrix, head, map), wide: of keys that are read
    std::int64_t strength_sums = -1;                 ///< backward: as strengths
    std::int64_t decay_sums = -1, end_sums = -1;     ///< backward: as decays

    std::int64_t fronts = -1;  ///< backward, of all: (blocks + 1, sequence, head, key_dim, value_dim), wide: states before the blocks
    std::int64_t state_gradient = -1;              ///< backward, of all: (sequence, head, key_dim, value_dim), wide
    std::int64_t sums = -1;                        ///< backward, of all: (chunks · batch, decays + heads), wide
    std::int64_t library = -1, library_bytes = 0;  ///< cuBLASLt's own
    std::int64_t total = 0;

    [[nodiscard]] std::int64_t chunks() const { return whole + (rest > 0 ? 1 : 0); }
    /// Matrices that are multiplied for each product with inverses.
    [[nodiscard]] int parts_of_inverses() const { return remainders < 0 ? 1 : 2; }
    /// Chunks of the last block.
    [[nodiscard]] std::int64_t last_chunks() const { return rest > 0 ? 1 : whole - (blocks - 1) * block; }
};
[[nodiscard]] RuleWorkspace rule_workspace(const KernelTraits& traits, Dtype dtype, const DeltaRuleSizes& sizes, bool backward);
inline constexpr std::string_view kRuleWorkspace = "delta rule workspace";

}  // namespace mgplan::model
