// fmt, compiled into an archive: Debian has it as a shared library only, or as headers that every file of
// ours would compile anew.
#include <fmt/format-inl.h>

// What the headers declare and leave to the library.
template auto fmt::detail::locale_ref::get<std::locale>() const -> std::locale;
template auto fmt::detail::decimal_point_impl<char>(locale_ref) -> char;
template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::dragonbox::to_decimal<float>(float) noexcept -> decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal<double>(double) noexcept -> decimal_fp<double>;
