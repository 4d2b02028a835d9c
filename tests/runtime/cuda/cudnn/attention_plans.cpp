// Builds cuDNN's attention plans without a card, by the same code that builds them on one, and compares their workspaces with the
// predicted ones:  attention_plans ARCHITECTURE [--all]
// Then runs some whose execution is written down, and has threads share what one of them compiles.
// Sixteen plans of the architecture's card, or all shapes. Kernels are compiled and not run: nothing is said about their numbers or time.
// Needs the libcuda.so.1 of stand_in_driver.cpp before others. Exits 1 where a plan is refused or wants other bytes.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "model/ops/fused_attention.hpp"
#include "model/ops/scratch.hpp"
#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"
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

/// Ranks of card 0 ask, but where they are of another.
constexpr int kCard = 0;

/// A shape of a few places, so that its plan is compiled soon, and memory for it.
struct SmallCase {
    explicit SmallCase(int architecture, std::int64_t batch) {
        const model::Positions places = model::zigzag_positions(256, batch, 1, 0);
        const model::AttentionSizes sizes{places, places, 4, 4, 64, 64, 1, 0};
        shape = {batch, 4, 4, 256, 256, 64, 64, true, false};
        memory.q = &arrays[0];
        memory.k = &arrays[16];
        memory.v = &arrays[32];
        memory.output = &arrays[48];
        memory.log_sum_exp = &arrays[64];
        memory.workspace = &arrays[80];
        memory.workspace_bytes =
            model::attention_workspace({model::DeviceKind::cuda, architecture, true}, Dtype::bf16, sizes, false, true).library_bytes;
    }
    SmallCase(const SmallCase&) = delete;
    SmallCase& operator=(const SmallCase&) = delete;
    alignas(16) std::array<std::byte, 96> arrays{};
    FusedShape shape;
    FusedMemory memory;
};

/// Whether so many ranks, threads of their own, all have a plan for a new shape, each with its handle; what was made for them.
bool have_plans(int architecture, std::int64_t batch, const std::vector<int>& cards, PlansMade& made) {
    const PlansMade before = plans_made();
    const std::size_t runs_before = runs().with.size();
    std::vector<std::unique_ptr<FusedLibrary>> ranks(cards.size());
    std::vector<std::thread> threads;
    std::atomic<int> accepted = 0;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
        threads.emplace_back([&, rank] {
            SmallCase small(architecture, batch);
            ranks[rank] = make_cudnn_attention(nullptr, cards[rank]);
            if (!ranks[rank]->accepts(small.shape, small.memory)) return;
            ranks[rank]->run(small.shape, small.memory, 0.5);
            ++accepted;
        });
    }
    for (std::thread& thread : threads) thread.join();
    const PlansMade after = plans_made();
    made = {after.compiled - before.compiled, after.read - before.read};
    const std::set<cudnnHandle_t> handles(runs().with.begin() + static_cast<std::ptrdiff_t>(runs_before), runs().with.end());
    return accepted == static_cast<int>(cards.size()) && handles.size() == cards.size();
}

/// Whether what one rank compiles serves the others of its card, and every rank has a plan where the library does not write or read one.
bool shares_plans(int architecture) {
    const std::vector<int> one{kCard}, two{kCard, kCard}, four{kCard, kCard, kCard, kCard}, two_cards{kCard, kCard, kCard + 1, kCard + 1};
    PlansMade alone, shared, apart, unwritten, unread, later;
    bool right = have_plans(architecture, 1, one, alone) && alone.compiled > 0 && alone.read == 0;
    right = have_plans(architecture, 2, four, shared) && shared.compiled == alone.compiled && shared.read == 3 && right;
    right = have_plans(architecture, 3, two_cards, apart) && apart.compiled == 2 * alone.compiled && apart.read == 2 && right;
    right = have_plans(architecture, 3, two_cards, later) && later.compiled == 0 && later.read == 4 && right;
    let_plans_be_written(false, true);
    right = have_plans(architecture, 4, two, unwritten) && unwritten.compiled == 2 * alone.compiled && unwritten.read == 0 && right;
    let_plans_be_written(true, false);
    right = have_plans(architecture, 5, two, unread) && unread.compiled == 2 * alone.compiled && unread.read == 1 && right;
    let_plans_be_written(true, true);
    for (const auto& [what, made] : {std::pair{"a rank alone", alone},
                                     {"four of one card", shared},
                                     {"two of each of two cards", apart},
                                     {"these once more", later},
                                     {"two whose plans are not written", unwritten},
                                     {"two whose plans are not read", unread}})
        fmt::print("sm_{}: {}: {} plans compiled, {} read{}\n", architecture, what, made.compiled, made.read,
                   right ? "" : "  <-- ONE WRONG");
    return right;
}

/// Whether a rank hears of a shape that another of its card was refused, without asking again.
bool shares_refusals(int architecture) {
    SmallCase small(architecture, 6);
    const std::string first = cudnn_attention_refusal(kCard, small.shape, -1);
    const PlansMade before = plans_made();
    const std::string again = cudnn_attention_refusal(kCard, small.shape, -1);
    const PlansMade after = plans_made();
    const bool right = !first.empty() && again == first && after.compiled == before.compiled && after.read == before.read;
    if (!right) fmt::print("sm_{}: refused with \"{}\", then with \"{}\"\n", architecture, first, again);
    return right;
}

/// Whether what one rank is refused with, at a shape that cuDNN does not even let be described, tells the others of its card nothing of
/// that rank.
bool shares_refusals_without_a_rank(int architecture) {
    SmallCase small(architecture, 7);
    small.shape.qk_dim = -64;
    std::string first;
    std::thread([&] {
        name_rank_of_this_thread(3);
        first = cudnn_attention_refusal(kCard, small.shape, 0);
    }).join();
    const std::string again = cudnn_attention_refusal(kCard, small.shape, 0);
    const bool right = first.find("failed with") != std::string::npos && first.find("rank 3") == std::string::npos && again == first;
    if (!right) fmt::print("sm_{}: rank 3 is refused with \"{}\", another with \"{}\"\n", architecture, first, again);
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
        cudnn_attention_refusal(kCard, shape, model::attention_workspace(traits, Dtype::bf16, sizes, true, true).library_bytes);
    const std::string without = cudnn_attention_refusal(kCard, shape, 0);
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
    const auto attention = make_cudnn_attention(nullptr, kCard);
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
        if (!shares_plans(architecture)) ++wrong;
        if (!shares_refusals(architecture)) ++wrong;
        if (!shares_refusals_without_a_rank(architecture)) ++wrong;
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
