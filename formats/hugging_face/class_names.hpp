#pragma once
// The classes of a config's "architectures": whether one is a network of the config's type, and which head it ends in.

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/hugging_face/model_types.hpp"

namespace mgplan::formats {

/// The part of a network in place of the output layer, by the name of its class (modeling_layers.py, GenericFor…, and the classes of older
/// types): a linear layer with a row for each label.
enum class Head : std::uint8_t {
    output_layer,
    texts,   ///< …ForSequenceClassification: no bias
    tokens,  ///< …ForTokenClassification: with a bias, unless token_classification_bias says no
    spans,   ///< …ForQuestionAnswering: where an answer begins and where it ends, with a bias
    reward,  ///< …RewardModel: one value. No class of transformers; Qwen's own is an MLP
    none,    ///< …Model: nothing after the last norm
};
[[nodiscard]] Head head_of(std::string_view class_name);

/// The reason why the class is no network of that type, as the end of a sentence that begins with the class; "" where it is one. Known are
/// the type's class with any head, classes of other types in the table, and classes that begin with the name of the type.
/// `stated`: model_type as the file has it.
[[nodiscard]] std::string other_network_of_class(std::string_view class_name, const ModelType& type, std::string_view stated);

}  // namespace mgplan::formats
