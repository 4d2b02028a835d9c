#include <array>
#include <cmath>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"

// Buffers of a fixed size for what a rank's experts receive. Rules: __post_init__ of megatron/core/transformer/transformer_config.py at
// d98e8a64.

namespace mgplan::formats {
namespace {

constexpr std::string_view kCapacity = "--moe-expert-rank-capacity-factor", kStash = "--moe-paged-stash",
                           kPages = "--moe-paged-stash-buffer-size-factor-cuda", kBackend = "--moe-flex-dispatcher-backend";
constexpr std::string_view kHostPages = "--moe-paged-stash-buffer-size-factor-cpu";
constexpr std::array<std::string_view, 3> kOfStash{kPages, kHostPages, "--moe-paged-stash-page-size"};

void check_stash(FlagReader& flags, const TrainingSpec& training) {
    if (!flags.has(kCapacity)) flags.problem("{} needs {}; add it, or remove the stash", kStash, kCapacity);
    if (flags.has("--cpu-offloading") || training.megatron.offloaded_layers > 0)
        flags.problem("{} does not go with --cpu-offloading; keep one", kStash);
    for (const std::string_view module : {"expert_fc1", "moe_act", "fused_group_mlp"}) {
        for (const std::string& asked : flags.texts("--offload-modules")) {
            if (asked == module) flags.problem("{} keeps what --offload-modules {} would send to the host; remove one", kStash, module);
        }
    }
}

void read_expert_buffers(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    ExpertBuffers buffers;
    buffers.capacity = flags.real_or(kCapacity, 0, 0, kMostExpertCapacity);
    buffers.paged_stash = flags.has(kStash);
    buffers.pages = flags.real_or(kPages, buffers.pages, -kMostExpertCapacity, kMostExpertCapacity);
    const double host_pages = flags.real_or(kHostPages, 0, -kMostExpertCapacity, kMostExpertCapacity);
    if (!buffers.paged_stash) {
        buffers.pages = ExpertBuffers{}.pages;
        for (const std::string_view flag : kOfStash) flags.idle(flag);
    }
    if (!job.model.moe) {
        flags.idle(kCapacity);
        flags.idle(kStash);
        return;
    }
    if (buffers.paged_stash) check_stash(flags, training);
    if (flags.raw(kCapacity).empty()) return;
    const std::string backend = flags.raw(kBackend).empty() ? "deepep" : flags.raw(kBackend);
    if (backend != "hybridep" && backend != "ncclep")
        flags.problem("{} needs {} hybridep or ncclep, and it is {}; use one of them, or remove the factor", kCapacity, kBackend,
                      FlagReader::shown(backend));
    // Releases did not require it (Megatron-Bridge v0.5.0 trains gpt-oss-120b so).
    if (backend == "hybridep" && !training.megatron.op_fuser && !flags.has("--moe-use-grouped-tensor"))
        job.assumptions.push_back(fmt::format(
            "a release in which {} needs neither --use-transformer-engine-op-fuser nor --moe-use-grouped-tensor, as it does at d98e8a64",
            kCapacity));
    // Other dispatchers have no such buffers (moe/token_dispatcher.py).
    if (job.model.moe->dispatcher != TokenDispatcher::hybrid_ep) {
        flags.idle(kCapacity);
        flags.idle(kStash);
        return;
    }
    // Then even routing overflows in every step, which runs again without buffers and stash (moe/paged_stash.py, PagedStashRunner).
    constexpr std::string_view kAgain = "a factor below 1, with which every step runs twice";
    if (buffers.capacity < 1) {
        flags.not_computed(kCapacity, std::string(kAgain), Decides::fit);
        flags.not_computed(kStash, std::string(kAgain), Decides::fit);
        return;
    }
    if (buffers.paged_stash && std::abs(buffers.pages) + std::abs(host_pages) < 1) {
        flags.not_computed(kPages, std::string(kAgain), Decides::fit);
        buffers = {.capacity = buffers.capacity};
    }
    training.megatron.expert_buffers = buffers;
}

void write_expert_buffers(FlagWriter& out, const Job& job) {
    const MegatronSwitches& switches = job.training->megatron;
    const ExpertBuffers& buffers = switches.expert_buffers;
    if (!job.model.moe || job.model.moe->dispatcher != TokenDispatcher::hybrid_ep || buffers.capacity == 0) return;
    out.real("moe-expert-rank-capacity-factor", buffers.capacity);
    out.flag_if(!switches.op_fuser, "moe-use-grouped-tensor");  // one of the two is needed
    out.flag_if(buffers.paged_stash, "moe-paged-stash");
    if (buffers.paged_stash && buffers.pages != ExpertBuffers{}.pages) out.real("moe-paged-stash-buffer-size-factor-cuda", buffers.pages);
}

constexpr std::array kExpertBufferFlags{
    FlagRow{"moe-expert-rank-capacity-factor= moe-paged-stash moe-paged-stash-buffer-size-factor-cuda= "
            "moe-use-grouped-tensor",
            Both{read_expert_buffers, write_expert_buffers}},
};

}  // namespace

constinit const FlagTopic kExpertBufferTopic{kExpertBufferFlags};

}  // namespace mgplan::formats
