#pragma once

#include <string_view>

namespace mgplan {

/// Facts of a kind of mixer: a model's properties are those of its mixers. Each kind has them as kTraits.
struct MixerTraits {
    std::string_view words;                ///< for messages: "Mamba-2"
    std::string_view timed_at_least = {};  ///< words for the computation whose time is a lower bound: "the selective scan of Mamba"
    std::string_view shapes_alone = {};  ///< words for a mixer that runs on shapes alone, so that nothing trains it; beyond timed_at_least
    bool between_streams = false;        ///< is predicted between residual streams that maps mix (HyperConnections)
    bool takes_multipliers = false;      ///< ModelSpec::branch_multipliers scale what it computes
    bool projects_latents = false;       ///< has latents that are projected up (RecomputeModule::mla_up_proj)
    bool keeps_core = false;             ///< attention whose core no recompute repeats
    bool joins_documents = false;        ///< its prediction ignores the documents that a sequence packs
    /// Name of models with it where published runs are grouped; empty where the runs of other kinds represent it.
    std::string_view published_as = {};
};

}  // namespace mgplan
