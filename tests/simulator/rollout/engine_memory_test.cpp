// Memory of an inference engine: what its profile run holds at its peak.

#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"

#include "plan/parameters/model_adapter.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/rollout/engine_memory.hpp"

namespace mgplan::simulator::engine_memory_test {
namespace {

EngineMemory memory_of(const std::string& model, const EngineSettings& settings) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    return engine_memory(typed_model(formats::load_model(model).model), settings, cluster, calibration_of(cluster), cluster.memory_bytes);
}

EngineSettings settings_of(std::int64_t tokens, std::int64_t sequences) {
    EngineSettings settings;
    settings.batched_tokens = tokens;
    settings.sequences = sequences;
    return settings;
}

/// vllm-project/vllm PR 10511: "PyTorch activation peak memory 1.26GiB" of Llama-3-8B, with 256 sequences of a vocabulary of 128,256. The
/// 64 MiB of the last layer's 8,192 tokens are next to it there.
TEST(EngineMemory, ASamplerThatSortsHoldsWhatWasReported) {
    EngineSettings settings = settings_of(8192, 256);
    settings.sampler = EngineSampler::sorts;
    const double reported = 1.26 * (1 << 30);
    EXPECT_NEAR(static_cast<double>(memory_of("llama3-8b", settings).activations), reported - (64 << 20), 0.04 * reported);
}

/// vllm-project/vllm PR 32558 measured 1.25 GB for 256 sequences of a vocabulary of 131,072: 37 to 40 bytes a logit, and a third of it for
/// kernels that select.
TEST(EngineMemory, SortingTakesThirtyEightBytesALogit) {
    constexpr std::int64_t kSequences = 1024, kVocabulary = 128256;
    EngineSettings settings = settings_of(1024, kSequences);
    EXPECT_EQ(memory_of("llama3-8b", settings).activations, kSequences * kVocabulary * 10);
    settings.sampler = EngineSampler::sorts;
    EXPECT_EQ(memory_of("llama3-8b", settings).activations, kSequences * kVocabulary * 38);
}

TEST(EngineMemory, ExpertsDividedOverDpTakeTheTokensOfAllItsRanks) {
    const auto activations = [](std::int64_t dp, std::int64_t tokens) {
        EngineSettings settings = settings_of(tokens, 1);
        settings.layout = {1, dp, true};
        return memory_of("qwen3-30b-a3b", settings).activations;
    };
    // Of a token: three times the residual stream of 2,048; for each of 8 experts 2,048 outputs and 768 activations.
    constexpr std::int64_t kStreams = 3 * 2048, kRouted = 8 * (2048 + 768), kGathered = 2 * 2048;
    EXPECT_EQ(activations(1, 4096), 2 * 4096 * (kStreams + kRouted));
    EXPECT_EQ(activations(4, 4096), 2 * 4096 * (kStreams + 4 * (kRouted + kGathered)));
    EXPECT_EQ(activations(16, 4096), 2 * (4096 * (kStreams + 16 * kGathered) + 32768 * kRouted))
        << "32,768 tokens go through the experts at once";
}

/// Its scheduler allows 4,096 sequences, and its cache holds far fewer.
TEST(EngineMemory, SglangSamplesTheSequencesOfItsLargestGraph) {
    EngineSettings settings;
    settings.engine = RolloutEngine::sglang;
    settings.batched_tokens = 1;
    EXPECT_EQ(memory_of("llama3-8b", settings).activations, 256 * 128256 * 10);
    settings.layout.tp = 4;
    EXPECT_EQ(memory_of("llama3-8b", settings).activations, 512 * 128256 * 10);
    EXPECT_EQ(memory_of("llama3-8b", settings).graphs, std::int64_t{1} << 30) << "2 MiB for each of them, as it reserves";
}

}  // namespace
}  // namespace mgplan::simulator::engine_memory_test
