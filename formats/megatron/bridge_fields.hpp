#pragma once
// The fields of Megatron-Bridge's ConfigContainer: which of Megatron-LM's flags says the same, and on which others a field depends.

#include <cstdint>
#include <span>
#include <string_view>

namespace mgplan::formats {

/// Form of the flag that a field becomes.
enum class FieldForm : std::uint8_t {
    value,   ///< the flag with the field's value
    if_on,   ///< the switch where the field is true
    if_off,  ///< the switch where it is false
};

/// A field whose flag has another name than its own; `section` "model", "ddp", …
struct FieldRule {
    std::string_view section, field;
    FieldForm form;
    std::string_view flag;
};
[[nodiscard]] std::span<const FieldRule> bridge_field_rules();
/// The field that says what the flag of Megatron-LM says, as a message names it: "train.micro_batch_size"; "" where there is none.
[[nodiscard]] std::string bridge_field_of(std::string_view flag);

/// Fields that say something only where another one is set: theirs begin with one of `prefixes`.
struct DependentFields {
    std::string_view prefixes;  ///< separated by blanks
    std::string_view needed;    ///< "model.num_moe_experts model.is_hybrid_model": one of these, set and not false, 0 or none
};
[[nodiscard]] std::span<const DependentFields> bridge_dependent_fields();

/// True if a field says how a job is set up and nothing that its prediction follows.
[[nodiscard]] bool bridge_field_without_effect(std::string_view field);
/// True if the value is the field's default, of fields whose flag is not computed: it changes nothing.
[[nodiscard]] bool is_bridge_default(std::string_view field, std::string_view value);

}  // namespace mgplan::formats
