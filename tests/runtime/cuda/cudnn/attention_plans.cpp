// Builds cuDNN's attention plans without a card, by the same code that builds them on one, and compares their workspaces with the
// predicted ones:  attention_plans ARCHITECTURE [--all]
// Then runs one whose execution is written down.
// Sixteen plans of the architecture's card, or all shapes. Kernels are compiled and not run: nothing is said about their numbers or time.
// Needs the libcuda.so.1 of stand_in_driver.cpp before others. Exits 1 where a plan is refused or wants other bytes.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "model/ops/fused_attention.hpp"
#include "model/ops/scratch.hpp"
#include "plan/text/errors.hpp"
#include "runtime/cuda/cudnn_attention.hpp"
#include "runtime/cuda/cudnn_library.hpp"
#include "tests/runtime/cuda/cudnn/deviceless_cudnn.hpp"

namespace mgplan::runtime::cuda {
namespace {

/// CUDA C++ Programming Guide, "Compute Capabilities": shared memory of a multiprocessor and the most of a block (KiB); NVIDIA's
/// architecture papers: multiprocessors of the product. The rest is alike, or no plan hangs on it.
struct Card {
    int architecture;
    const char* name;
    int multiprocessors, shared_kib, block_kib;
};
constexpr std::array<Card, 4> kCards{{{80, "NVIDIA A100-SXM4-80GB", 108, 164, 163},
                                      {90, "NVIDIA H200", 132, 228, 227},
                                      {100, "NVIDIA B200", 148, 228, 227},
                                      {103, "NVIDIA B300", 148, 228, 227}}};

std::string properties_of(const Card& card) {
    return fmt::format(
        R"({{"deviceName":"{}","cudaDeviceId":0,"deviceVer":{},"multiProcessorCount":{},"driverVer":13000,"maxSharedMemoryPerBlockOptin":{},)"
        R"("totalGlobalMem":150109106995,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":52428800,"warpSize":32,)"
        R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"regsPerBlock":65536,)"
        R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,"pciDeviceId":0,)"
        R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"sharedMemPerMultiprocessor":{}}})",
        card.name, card.architecture * 10, card.multiprocessors, card.block_kib * 1024, card.shared_kib * 1024);
}

/// A shape, and what of it: all places, or the parts that context parallel ranks have of each other's.
struct Case {
    std::int64_t places, batch, heads, kv_heads, qk_dim, v_dim;
    std::int64_t queries, keys;
    bool backward;
    bool packed = false;
};

constexpr std::size_t kOfCi = 16;

/// Those of CI come first: large and grouped, packed too, twelve heads of 64 packed and not, parts of a ring, latent attention (not on
/// A100), an odd number of places.
std::vector<Case> cases() {
    constexpr std::array<std::array<std::int64_t, 6>, 22> kShapes{
        {{4096, 2, 32, 8, 128, 128}, {2048, 8, 12, 12, 64, 64}, {4096, 1, 128, 128, 192, 128}, {4095, 1, 32, 8, 128, 128},
         {32, 1, 4, 2, 16, 16},      {4096, 1, 32, 32, 80, 80}, {8192, 1, 64, 8, 128, 128},    {4096, 4, 16, 16, 96, 96},
         {256, 2, 4, 4, 64, 64},     {256, 2, 4, 2, 64, 64},    {256, 2, 8, 2, 128, 128},      {256, 2, 4, 1, 128, 128},
         {32, 1, 4, 4, 16, 16},      {32, 2, 4, 2, 16, 16},     {32, 1, 2, 1, 16, 16},         {32, 1, 2, 2, 16, 16},
         {16, 1, 4, 2, 16, 16},      {32, 1, 4, 2, 8, 8},       {64, 1, 4, 2, 16, 16},         {4, 1, 4, 2, 16, 16},
         {34, 1, 4, 2, 16, 16},      {4096, 1, 32, 8, 128, 64}}};
    std::vector<Case> list;
    const auto add = [&](const std::array<std::int64_t, 6>& s, std::int64_t queries, std::int64_t keys) {
        for (const bool backward : {false, true}) list.push_back({s[0], s[1], s[2], s[3], s[4], s[5], queries, keys, backward});
    };
    const auto add_packed = [&](const std::array<std::int64_t, 6>& s) {
        for (const bool backward : {false, true}) list.push_back({s[0], s[1], s[2], s[3], s[4], s[5], s[0], s[0], backward, true});
    };
    add(kShapes[0], kShapes[0][0], kShapes[0][0]);
    add_packed(kShapes[0]);
    add_packed(kShapes[1]);
    add(kShapes[0], kShapes[0][0], kShapes[0][0] / 2);
    for (std::size_t i = 1; i < kShapes.size(); ++i) add(kShapes[i], kShapes[i][0], kShapes[i][0]);
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
        const std::int64_t places = kShapes[i][0];
        if (i > 0) add(kShapes[i], places, places / 2);
        add(kShapes[i], places / 2, places);
        if (i > 1 && kShapes[i][4] == kShapes[i][5]) add_packed(kShapes[i]);
    }
    return list;
}

/// Whether the plan is there and wants what is predicted; says so in a line.
bool build(const Card& card, const Case& c) {
    const model::KernelTraits traits{model::DeviceKind::cuda, card.architecture, true};
    const model::Positions positions = model::zigzag_positions(c.places, c.batch, 1, 0);
    const model::AttentionSizes sizes{positions, positions, c.heads, c.kv_heads, c.qk_dim, c.v_dim, 1, 0};
    const std::int64_t predicted = model::attention_workspace(traits, Dtype::bf16, sizes, c.backward, true).library_bytes;
    const bool whole = c.queries == c.keys;
    const FusedShape shape{c.batch, c.heads, c.kv_heads, c.queries, c.keys, c.qk_dim, c.v_dim, whole, c.backward, c.packed};
    const std::string said = try_cudnn_attention(shape, predicted);
    std::int64_t wanted = -1;
    if (said.starts_with("a plan with ")) wanted = std::stoll(said.substr(std::string_view("a plan with ").size()));
    const bool right = wanted >= 0 && (whole ? wanted == predicted : wanted <= predicted);
    fmt::print("sm_{}: {} x {} places over {}, {} heads over {} of {} and {}, {}{}: {} bytes predicted, {}{}\n", card.architecture, c.batch,
               c.queries, c.keys, c.heads, c.kv_heads, c.qk_dim, c.v_dim, c.backward ? "backward" : "forward", c.packed ? ", packed" : "",
               predicted, said, right ? "" : "  <-- WRONG");
    std::fflush(stdout);
    return right;
}

/// Whether a rank that is traced would hear what this card's cuDNN has: the largest shape in its workspace, and nothing without any.
bool tells_refusals(int architecture) {
    const Case c = cases().at(1);
    const model::Positions places = model::zigzag_positions(c.places, c.batch, 1, 0);
    const model::AttentionSizes sizes{places, places, c.heads, c.kv_heads, c.qk_dim, c.v_dim, 1, 0};
    const model::KernelTraits traits{model::DeviceKind::cuda, architecture, true};
    const auto part = model::fused_part(traits, Dtype::bf16, sizes);
    const FusedShape shape = model::fused_shape(sizes, part.value(), true);
    const std::string within =
        cudnn_attention_refusal(shape, model::attention_workspace(traits, Dtype::bf16, sizes, true, true).library_bytes);
    const std::string without = cudnn_attention_refusal(shape, 0);
    fmt::print("sm_{}: asked before a rank is traced: \"{}\", and without workspace \"{}\"\n", architecture, within, without);
    return within.empty() && !without.empty();
}

/// Whether runs tell cuDNN their addresses and scale, and make a list of them only where they differ from the last run's.
bool tells_addresses_once(int architecture) {
    const Case c = cases().front();
    const model::Positions places = model::zigzag_positions(c.places, c.batch, 1, 0);
    const model::AttentionSizes sizes{places, places, c.heads, c.kv_heads, c.qk_dim, c.v_dim, 1, 0};
    const model::KernelTraits traits{model::DeviceKind::cuda, architecture, true};
    const FusedShape shape{c.batch, c.heads, c.kv_heads, c.queries, c.keys, c.qk_dim, c.v_dim, true, false};
    alignas(16) std::array<std::byte, 128> arrays{};
    FusedMemory memory;
    memory.q = &arrays[0];
    memory.k = &arrays[16];
    memory.v = &arrays[32];
    memory.output = &arrays[48];
    memory.log_sum_exp = &arrays[64];
    memory.workspace = &arrays[80];
    memory.workspace_bytes = model::attention_workspace(traits, Dtype::bf16, sizes, false, true).library_bytes;
    const auto attention = make_cudnn_attention(nullptr);
    if (!attention->accepts(shape, memory)) return false;
    const int before = runs().lists_of_addresses;
    bool right = true;
    const auto run = [&](double scale, int lists) {
        attention->run(shape, memory, scale);
        const std::vector<void*>& told = runs().of.back();
        right = right && runs().lists_of_addresses == before + lists && told.size() == 7 && told[0] == memory.q &&
                told[3] == memory.output && told[4] == memory.log_sum_exp &&
                *static_cast<const float*>(told[5]) == static_cast<float>(scale);
        if (!right)
            fmt::print("run {}: {} lists of addresses, not {}, or others\n", runs().of.size(), runs().lists_of_addresses - before, lists);
    };
    run(0.5, 1);
    run(0.5, 1);
    memory.output = &arrays[96];
    run(0.5, 2);
    run(0.25, 3);
    run(0.25, 3);
    memory.workspace = &arrays[112];
    run(0.25, 4);
    return right;
}

int run(int architecture, bool all) {
    if (!cudnn_unavailable().empty()) throw RunError(cudnn_unavailable());
    for (const Card& card : kCards) {
        if (card.architecture != architecture) continue;
        stand_before_card(properties_of(card));
        std::size_t built = 0, wrong = 0;
        for (const Case& each : cases()) {
            const model::Positions places = model::zigzag_positions(each.places, each.batch, 1, 0);
            const model::AttentionSizes sizes{places, places, each.heads, each.kv_heads, each.qk_dim, each.v_dim, 1, 0};
            if (!model::attention_is_fused({model::DeviceKind::cuda, architecture, true}, Dtype::bf16, sizes, each.backward)) continue;
            wrong += build(card, each) ? 0 : 1;
            if (++built == kOfCi && !all) break;
        }
        fmt::print("sm_{}: {} plans, {} refused or of other bytes\n", architecture, built, wrong);
        if (!tells_refusals(architecture)) ++wrong;
        if (!tells_addresses_once(architecture)) ++wrong;
        return wrong == 0 ? 0 : 1;
    }
    throw RunError(fmt::format("no card of architecture {} is described here: 80, 90, 100 and 103 are", architecture));
}

}  // namespace
}  // namespace mgplan::runtime::cuda

int main(int argc, char** argv) {
    try {
        const std::vector<std::string> words(argv + 1, argv + argc);
        if (words.empty() || words.size() > 2 || (words.size() == 2 && words[1] != "--all")) {
            fmt::print(stderr, "usage: attention_plans 80|90|100|103 [--all]\n");
            return 2;
        }
        return mgplan::runtime::cuda::run(std::atoi(words[0].c_str()), words.size() == 2);
    } catch (const std::exception& error) {
        fmt::print(stderr, "attention_plans: {}\n", error.what());
        return 1;
    }
}
