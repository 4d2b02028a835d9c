#pragma once
// A chunk in fp64 whose products are in fp8, run by ranks as threads, to hold against tests/model/training/fp8_reference.hpp.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/own_fp8.hpp"
#include "tests/model/training/fp8_mixture_reference.hpp"
#include "tests/model/training/fp8_reference.hpp"
#include "tests/model/training/parity_support.hpp"

namespace mgplan::model::fp8_test {

inline constexpr std::int64_t kTokens = 16;

/// Ranks of tp lie beside each other. Without ep and etp every rank has all experts whole; with one of them it spans all ranks.
struct ChunkCase {
    int tp = 1, cp = 1;
    bool sequence_parallel = false;
    EnumSet<RecomputeModule> modules{};
    CpCommType exchange = CpCommType::p2p;
    int ep = 1, etp = 1;
    OwnFp8 scaling = OwnFp8::current;
    int steps = 1;  ///< with the same weights, the last of which counts
    std::int64_t tokens = kTokens;
    [[nodiscard]] int ranks() const { return tp * cp; }
    [[nodiscard]] bool divides_experts() const { return ep * etp > 1; }
};

/// The places that each rank of cp holds: one stretch from the front and one from the back (model/ops/positions.hpp).
[[nodiscard]] std::vector<std::vector<std::size_t>> places_of(int cp, std::int64_t tokens = kTokens);

/// A Llama with biases and without positions, all of whose shares on two ranks 16 divides.
[[nodiscard]] ModelSpec plain_llama();
[[nodiscard]] tests::fp8_reference::Sizes sizes_of(const ModelSpec& model, const ChunkCase& c);

/// A dense layer and mixtures with a shared expert, all of whose shares on two ranks 16 divides.
[[nodiscard]] ModelSpec mixture();
/// Latent attention beside it, and a depth of multi-token prediction.
[[nodiscard]] ModelSpec latent_mixture();
/// As the reference has it: two layers without positions.
[[nodiscard]] ModelSpec plain(ModelSpec model);

/// All 0 without latent attention.
[[nodiscard]] tests::fp8_reference::LatentSizes latent_sizes_of(const ModelSpec& model, const ChunkCase& c);
/// Rows that are cast together where tp's sequence parallelism divides those of cp.
[[nodiscard]] std::vector<std::vector<std::size_t>> places_outside(const ChunkCase& c);

/// The model's parameters by rank of tp; those of experts that are divided by rank.
using WeightsByRank = std::vector<tests::fp8_reference::Weights>;

/// A chunk's loss and, by rank of tp (of experts that are divided by rank), its gradients, in fp64 but for its products in fp8. What ranks
/// of cp, and with sequence parallelism of tp, have parts of is their sum.
[[nodiscard]] tests::fp8_reference::Result run_chunk(const ModelSpec& model, const ChunkCase& c, WeightsByRank& weights);

/// The tokens of every chunk, and what they predict.
struct ChunkTokens {
    std::vector<int> tokens, targets;
};
[[nodiscard]] ChunkTokens chunk_tokens(std::int64_t tokens = kTokens);

/// What plain loops make of a model with mixtures; by the scales of the steps before where `steps` is given.
[[nodiscard]] tests::fp8_reference::Result mixture_reference(const ModelSpec& model, const ChunkCase& c, const WeightsByRank& weights,
                                                             tests::fp8_reference::Follow* steps = nullptr);

/// Layouts and recompute under which trainings of dense models, and of mixtures, are held by every recipe.
[[nodiscard]] std::vector<tests::Case> dense_layouts();
[[nodiscard]] std::vector<tests::Case> mixture_layouts();

/// A training in fp8-current, or by another recipe.
[[nodiscard]] TrainingTask task_of(const ModelSpec& model, const tests::Case& c, std::int64_t sequence = 16,
                                   Fp8Recipe recipe = Fp8Recipe::tensorwise);
/// Why it is not run, or nothing.
[[nodiscard]] std::string refusal_of(const TrainingTask& task);

/// A training's steps beside those of one rank. The first one's loss and gradient norm are the same where both `sum_alike`, and nearly the
/// same elsewhere. Of the last one the loss is held loosely, and falls: in each step a rounding difference becomes one of a code, and a
/// router's other choice; five steps came to 5.5 % with one compiler and processor and to 4 % with others.
void expect_steps_near(const tests::Outcome& outcome, const tests::Outcome& one, bool sum_alike, double norm_tolerance);

/// The chunk's loss and gradients are the reference's to 1e-5, and without fp8 they are not.
void expect_those_of_the_reference(const ModelSpec& model, const ChunkCase& c, const tests::fp8_reference::Result& result,
                                   const tests::fp8_reference::Result& expected);

}  // namespace mgplan::model::fp8_test
