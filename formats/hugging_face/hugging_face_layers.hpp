#pragma once
// The parts of one config: each reads its fields into the model, with the rules of the model's type.

#include <string>
#include <vector>

#include "formats/hugging_face/config_reader.hpp"
#include "formats/hugging_face/model_types.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::formats {

/// A config being read. Problems go to the reader's list, `assumptions` gets sentences.
struct ConfigParts {
    ConfigReader& config;
    const ModelType& type;
    ModelSpec& model;
    std::vector<std::string>& assumptions;
};

void read_heads(ConfigParts& parts);  ///< heads, kv heads, head size; the hidden size is there
void read_mla(ConfigParts& parts);    ///< DeepSeek's attention, where kv_lora_rank is given
void read_biases(ConfigParts& parts);
void read_windows(ConfigParts& parts);    ///< layer_types, sliding_window; the layers are there
void read_positions(ConfigParts& parts);  ///< kind, table, rotary base and scaling; the head size is there
void read_mlp(ConfigParts& parts);        ///< width, activation, gate
void read_mixture(ConfigParts& parts);    ///< experts and router; the MLP is there
/// The activation by one of these fields' names of it; a name that is not known is a problem.
[[nodiscard]] Activation read_activation(ConfigReader& config, Activation fallback,
                                         Aliases fields = {"hidden_act", "activation_function", "hidden_activation"});
/// Scores, balancing and groups of experts.
void read_router(ConfigReader& config, const ModelType& type, MoeSpec& moe);
/// Lists features that have no weights and change the network: multipliers, layers without positions, chunks.
void read_left_out(ConfigParts& parts);
/// Fields that nobody read, but that change a network wherever a class has them.
void refuse_other_networks(ConfigParts& parts);

}  // namespace mgplan::formats
